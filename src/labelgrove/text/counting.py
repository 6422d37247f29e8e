"""Document frequencies counted in parts of a corpus and merged, as one count would give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from labelgrove import _native
from labelgrove.core.arrays import Array, Int64, offsets
from labelgrove.core.strings import StringTable
from labelgrove.data.records import has_records, plain_text
from labelgrove.text.feeding import feed_texts, find_analyzer, import_analyzer
from labelgrove.text.field_terms import value_counter
from labelgrove.text.tfidf_params import TfidfParams, tables, term_counter, vocabulary_of


@dataclass(frozen=True)
class TermCounts:
    """Terms in sorted order, how often each occurs, and in how many texts.

    With hashed features there are no terms, but a number for every bucket.
    """

    vocabulary: StringTable
    occurrences: Int64
    texts: Int64

    @classmethod
    def of(cls, counter: _native.TermCounter, params: TfidfParams) -> TermCounts:
        """All that was counted."""
        occurrences, texts = counter.totals(0.0, float("inf"))
        vocabulary = vocabulary_of(counter, params)
        return cls(vocabulary, occurrences.astype(np.int64), texts.astype(np.int64))

    @classmethod
    def merged(cls, parts: Sequence[TermCounts]) -> TermCounts:
        """The counts of several parts of a corpus."""
        if len(parts) == 1:
            return parts[0]
        if not any(len(part.vocabulary) for part in parts):
            sums = (sum(part.occurrences for part in parts), sum(part.texts for part in parts))
            return cls(parts[0].vocabulary, *(np.asarray(each, np.int64) for each in sums))
        # The order of UTF-8 bytes is that of code points.
        terms = [_encoded(part.vocabulary) for part in parts]
        union = sorted({term for each in terms for term in each})
        place = {term: number for number, term in enumerate(union)}
        occurrences, texts = np.zeros(len(union), np.int64), np.zeros(len(union), np.int64)
        for part, own in zip(parts, terms, strict=True):
            places = np.fromiter((place[term] for term in own), np.int64, len(own))
            occurrences[places] += part.occurrences
            texts[places] += part.texts
        return cls(_table(union), occurrences, texts)

    def counter(self) -> _Counter:
        """What chooses terms among these."""
        return _Counter(self)


class _Counter:
    """Answers like the native TermCounter that had counted all texts."""

    def __init__(self, counts: TermCounts) -> None:
        self._counts = counts
        self._chosen: Int64 = np.arange(len(counts.texts))

    def totals(self, min_texts: float, max_texts: float) -> tuple[Int64, Int64]:
        counts = self._counts
        inside = np.ones(len(counts.texts), bool)
        if len(counts.vocabulary):
            inside = (counts.texts >= min_texts) & (counts.texts <= max_texts)
        self._chosen = np.flatnonzero(inside)
        return counts.occurrences[self._chosen], counts.texts[self._chosen]

    def choose(self, chosen: Array) -> None:
        self._chosen = self._chosen[chosen == 1]

    def terms(self) -> tuple[Array, Array]:
        table = self._counts.vocabulary.take(self._chosen)
        return table.blob, table.offsets


def count_terms(texts: StringTable, params: TfidfParams) -> TermCounts:
    """Counts the terms of some texts; ``params.analyzer`` must not be "auto"."""
    if ":" in params.analyzer:
        import_analyzer(params.analyzer)  # the process that sent us here knows it
    analyzer = find_analyzer(params.analyzer)
    counter = term_counter(params, analyzer, keep_counts=False)
    words = map(plain_text, texts) if has_records(texts) else texts
    feed_texts(words, counter, analyzer=analyzer, tables=partial(tables, params), nfc=params.nfc)
    return TermCounts.of(counter, params)


def count_values(texts: StringTable) -> TermCounts:
    """Counts the values of documents' fields."""
    return TermCounts.of(value_counter(texts), TfidfParams())


def merge_counts(*parts: TermCounts) -> TermCounts:
    """The same as ``TermCounts.merged``, for engines."""
    return TermCounts.merged(parts)


def _encoded(table: StringTable) -> list[bytes]:
    source, ends = table.blob.tobytes(), table.offsets.tolist()
    return [source[first:last] for first, last in pairwise(ends)]


def _table(terms: list[bytes]) -> StringTable:
    ends = offsets([len(term) for term in terms])
    return StringTable(np.frombuffer(b"".join(terms), np.uint8), ends)
