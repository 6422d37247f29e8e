"""The fields of documents as terms of their own, in columns after those of the words.

"Springer" the publisher and "springer" in a text are two terms. A value is a term as a whole, with
the idf of words, times the weight of its field; then a row with its words and fields is scaled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labelgrove import _native
from labelgrove.core.arrays import CsrParts, Float32
from labelgrove.core.part import Part
from labelgrove.core.resources import thread_count
from labelgrove.core.strings import StringTable
from labelgrove.data.records import BETWEEN, FieldNames, field_terms
from labelgrove.errors import ConfigError
from labelgrove.text import tfidf_params
from labelgrove.text.feeding import feed_texts
from labelgrove.text.tfidf_params import Counter, TermCounts, TfidfParams, no_tables


@dataclass(frozen=True)
class FieldTerms:
    """A column for each value of a field that enough documents have."""

    names: FieldNames
    vocabulary: StringTable
    idf: Float32  # times the weight of the field
    model: _native.TfidfModel

    @classmethod
    def make(cls, names: FieldNames, vocabulary: StringTable, idf: Float32) -> FieldTerms:
        """From terms, which are sorted, and their weights."""
        model = _native.TfidfModel.build(
            _tokens(),
            _native.WeightOptions(sublinear_tf=False, binary=True, norm="none"),
            blob=vocabulary.blob,
            offsets=vocabulary.offsets,
            idf=idf,
        )
        return cls(names, vocabulary, idf, model)

    @classmethod
    def from_counter(
        cls, names: FieldNames, params: TfidfParams, counter: Counter, n_records: int
    ) -> FieldTerms:
        """From what has counted the values of so many documents."""
        whole = replace(params, max_features=None)
        frequencies = tfidf_params.choose_terms(counter, whole, n_records, allow_none=True)
        vocabulary = StringTable(*counter.terms())
        weights = [params.field_weights.get(t.partition(BETWEEN)[0], 1.0) for t in vocabulary]
        idf = tfidf_params.idf_weights(frequencies, n_records, params)
        weighted = idf * np.array(weights, np.float32)
        return cls.make(names, vocabulary, weighted.astype(np.float32))

    def column(self, term: str) -> int:
        """The column of a term among the fields; -1 if it has none."""
        place = bisect_left(self.vocabulary, term)
        return place if self.vocabulary[place : place + 1] == [term] else -1

    def added_to(self, part: Part) -> Part:
        """The state of the words with that of the fields."""
        arrays = {"fields.idf": self.idf} | self.vocabulary.arrays("fields.vocabulary")
        return Part({**part.config, "fields": self.names.to_dict()}, {**part.arrays, **arrays})

    @classmethod
    def from_state(cls, part: Part) -> FieldTerms | None:
        """What :meth:`added_to` stored; None for documents without fields."""
        if "fields" not in part.config:
            return None
        vocabulary = StringTable.from_arrays(part.arrays, "fields.vocabulary")
        names = FieldNames.from_dict(part.config["fields"])
        return cls.make(names, vocabulary, part.arrays["fields.idf"])

    def beside(self, words: CsrParts, records: Iterable[str], norm: str) -> CsrParts:
        """Rows of words, unscaled, with those of the same documents' fields, scaled together."""
        sink = _native.TfidfRows(self.model, threads=thread_count())
        feed_texts(records, sink, analyzer=field_terms, tables=no_tables, nfc=False)
        fields = CsrParts(*sink.finish(), len(self.idf))
        in_words, in_fields = np.diff(words.indptr), np.diff(fields.indptr)
        indptr = words.indptr + fields.indptr
        data = np.empty(indptr[-1], np.float32)
        indices = np.empty(indptr[-1], words.indices.dtype)
        places = np.arange(len(words.data)) + np.repeat(fields.indptr[:-1], in_words)
        data[places], indices[places] = words.data, words.indices
        places = np.arange(len(fields.data)) + np.repeat(words.indptr[1:], in_fields)
        data[places], indices[places] = fields.data, fields.indices + words.cols
        if norm != "none":
            rows = np.repeat(np.arange(len(in_words)), in_words + in_fields)
            sizes = np.abs(data) if norm == "l1" else np.square(data, dtype=np.float64)
            lengths = np.bincount(rows, sizes, minlength=len(in_words))
            lengths = lengths if norm == "l1" else np.sqrt(lengths)
            data /= np.where(lengths > 0, lengths, 1.0).astype(np.float32)[rows]
        return CsrParts(indptr, indices, data, words.cols + fields.cols)


def value_counter(records: Sequence[str]) -> _native.TermCounter:
    """Counts the values of documents' fields."""
    counter = _native.TermCounter(_tokens(), binary=True, keep_counts=False, threads=thread_count())
    feed_texts(records, counter, analyzer=field_terms, tables=no_tables, nfc=False)
    return counter


def count_values(texts: StringTable) -> TermCounts:
    return TermCounts.of(value_counter(texts))


def _tokens() -> _native.AnalyzerOptions:
    return _native.AnalyzerOptions(
        analyzer="tokens", min_n=1, max_n=1, min_token_length=1, max_tokens=-1, lowercase=False
    )


def check_weights(params: TfidfParams, names: FieldNames | None) -> None:
    """Refuses the weight of a field that documents do not have."""
    known = () if names is None else names.fields
    if unknown := [name for name in params.field_weights if name not in known]:
        have = f"have the fields {', '.join(known)}" if known else "have no fields"
        raise ConfigError(f"tfidf.field_weights: {unknown[0]!r} is no field: documents {have}")
