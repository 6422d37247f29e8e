"""Statistics of a corpus, counted in one pass over its documents."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from labelgrove.data.records import words_of
from labelgrove.formats.documents import Document

# Labels by number of documents: more than 100, 11 to 100, 1 to 10.
BINS = {"head": (101, None), "torso": (11, 100), "tail": (1, 10)}


@dataclass(frozen=True)
class Spread:
    """The mean, median, 99th percentile and maximum of counts; all are zero without counts."""

    mean: float
    median: float
    p99: float
    max: int

    @classmethod
    def of(cls, counts: Any) -> Spread:
        """The spread of an array of counts."""
        values = np.asarray(counts, dtype=np.int64)
        if not len(values):
            return cls(0.0, 0.0, 0.0, 0)
        mean, (median, p99) = values.mean(), np.percentile(values, [50, 99])
        return cls(round(float(mean), 4), float(median), round(float(p99), 4), int(values.max()))


@dataclass(frozen=True)
class Bin:
    """The number of labels in a frequency bin, and of their occurrences."""

    labels: int
    occurrences: int


@dataclass(frozen=True)
class CorpusStats:
    """Counts of a corpus; ``top`` has the most frequent labels with their numbers of documents."""

    documents: int
    labels: int
    labels_per_document: Spread
    documents_per_label: Spread
    words_per_document: Spread
    characters: int
    empty_texts: int
    without_labels: int
    duplicate_texts: int  # documents with the same text as an earlier one
    duplicate_ids: int
    bins: dict[str, Bin]
    top: list[tuple[str, int]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def corpus_stats(documents: Iterable[Document], *, top: int = 10) -> CorpusStats:
    """Statistics of a stream of documents; stores a hash and two counts per document.

    >>> stats = corpus_stats([Document("a red shoe", ["shoes"]), Document("", ["shoes", "hats"])])
    >>> stats.documents, stats.labels, stats.empty_texts, stats.top
    (2, 2, 1, [('shoes', 2), ('hats', 1)])
    """
    words, label_counts = array("q"), array("q")
    frequency: Counter[str] = Counter()
    texts: set[bytes] = set()
    ids: set[bytes] = set()
    empty = without = repeated_texts = repeated_ids = characters = 0
    for document in documents:
        text = words_of(document.text)
        words.append(len(text.split()))
        characters += len(text)
        labels = set(document.labels)
        label_counts.append(len(labels))
        frequency.update(labels)
        without += not labels
        if not text.strip():
            empty += 1
        else:
            repeated_texts += not _new(texts, text)
        if document.id is not None:
            repeated_ids += not _new(ids, document.id)
    counts = np.fromiter(frequency.values(), np.int64, len(frequency))
    # Equal counts in the order of their labels, so that the order of documents does not matter.
    most = sorted(frequency.items(), key=lambda item: (-item[1], item[0]))[:top]
    return CorpusStats(
        documents=len(words),
        labels=len(frequency),
        labels_per_document=Spread.of(label_counts),
        documents_per_label=Spread.of(counts),
        words_per_document=Spread.of(words),
        characters=characters,
        empty_texts=empty,
        without_labels=without,
        duplicate_texts=repeated_texts,
        duplicate_ids=repeated_ids,
        bins={name: _bin(counts, low, high) for name, (low, high) in BINS.items()},
        top=most,
    )


def _bin(counts: Any, low: int, high: int | None) -> Bin:
    inside = counts[(counts >= low) & (counts <= (high or np.inf))]
    return Bin(len(inside), int(inside.sum()))


def _new(seen: set[bytes], string: str) -> bool:
    digest = hashlib.blake2b(string.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    before = len(seen)
    seen.add(digest)
    return len(seen) > before
