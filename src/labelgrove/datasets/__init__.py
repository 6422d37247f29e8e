"""Corpora to try: a made-up shop of any size, Debian's package descriptions, docstrings."""

from labelgrove.datasets.advice import advice
from labelgrove.datasets.apt import fetch_indexes, find_indexes, read_packages
from labelgrove.datasets.debian import debian_documents, debian_label_rows
from labelgrove.datasets.docstrings import docstring_documents
from labelgrove.datasets.shop import shop_corpus, shop_documents
from labelgrove.datasets.shop_labels import shop_label_index, shop_label_rows
from labelgrove.datasets.stats import CorpusStats, corpus_stats

__all__ = [
    "CorpusStats",
    "advice",
    "corpus_stats",
    "debian_documents",
    "debian_label_rows",
    "docstring_documents",
    "fetch_indexes",
    "find_indexes",
    "read_packages",
    "shop_corpus",
    "shop_documents",
    "shop_label_index",
    "shop_label_rows",
]
