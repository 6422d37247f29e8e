"""A made-up shop of any size to try, and corpus statistics."""

from labelgrove.datasets.advice import advice
from labelgrove.datasets.shop import shop_corpus, shop_documents
from labelgrove.datasets.shop_labels import shop_label_index, shop_label_rows
from labelgrove.datasets.stats import CorpusStats, corpus_stats

__all__ = [
    "CorpusStats",
    "advice",
    "corpus_stats",
    "shop_corpus",
    "shop_documents",
    "shop_label_index",
    "shop_label_rows",
]
