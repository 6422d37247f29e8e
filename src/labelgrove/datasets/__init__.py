"""Corpora to try: a made-up shop of any size, Debian's package descriptions, docstrings."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labelgrove.datasets.apt import fetch_indexes, find_indexes, read_packages
    from labelgrove.datasets.debian import debian_documents, debian_label_rows
    from labelgrove.datasets.docstrings import docstring_documents
    from labelgrove.datasets.shop import shop_corpus, shop_documents
    from labelgrove.datasets.shop_labels import shop_label_index, shop_label_rows
    from labelgrove.datasets.stats import CorpusStats, corpus_stats

__all__ = [
    "CorpusStats",
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

_HOMES = {
    "apt": ("fetch_indexes", "find_indexes", "read_packages"),
    "debian": ("debian_documents", "debian_label_rows"),
    "docstrings": ("docstring_documents",),
    "shop": ("shop_corpus", "shop_documents"),
    "shop_labels": ("shop_label_index", "shop_label_rows"),
    "stats": ("CorpusStats", "corpus_stats"),
}


def __getattr__(name: str) -> Any:
    # NumPy and SciPy are imported when a name is first used, not before.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
