"""The sparse features of training documents, and which of those there are is used.

A corpus may bring a matrix besides its texts, such as the tf-idf that a paper used. ``features``
says what the ranker reads: that matrix, tf-idf of the texts by itself, or both. Labels can be
documents, too: what a label is called teaches words that its documents may not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from labelgrove.core.arrays import CSR, as_csr, csr_arrays, csr_from_arrays, csr_parts, stacked_rows
from labelgrove.core.late import sparse
from labelgrove.core.part import Part
from labelgrove.core.scratch import Scratch
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex, Strings
from labelgrove.data.features import Features, row_lengths
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.errors import ConfigError, DataError, warn
from labelgrove.text.tfidf import HOW_TO_GIVE, TermReader, Tfidf, TfidfParams

Source = Literal["own", "given", "both"]
FeatureChoice = Literal["auto", "own", "given", "both"]  # what the setting ``features`` may be
# Rows this close to unit length have it: half precision and files round numbers.
UNIT_TOLERANCE = 1e-3


class FeatureSource(NamedTuple):
    """Which features of a corpus are used."""

    source: Source
    corpus: Corpus  # without a matrix that is not used
    derived: dict[str, tuple[Any, str]]  # the setting and why, where "auto" had a choice
    message: str  # for the log; empty where the settings say it, or there was no choice

    @property
    def read(self) -> Corpus:
        """The corpus, without its texts if the matrix replaces them."""
        return replace(self.corpus, texts=None) if self.source == "given" else self.corpus


def choose_features(setting: FeatureChoice, corpus: Corpus) -> FeatureSource:
    """What ``features`` means for a corpus; "auto" takes the matrix if there is one.

    >>> texts = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> choose_features("auto", texts).source
    'own'
    """
    matrix = given_matrix(corpus)
    if corpus.texts is None:
        if setting in ("own", "both"):
            raise DataError(
                f"features: {setting} needs texts, and these documents have features only; set "
                "features=given"
            )
        return FeatureSource("given", corpus, {}, "")
    if matrix is None:
        if setting in ("given", "both"):
            raise DataError(
                f"features: {setting} needs a matrix that comes with the texts, and this corpus "
                f"has none; {HOW_TO_GIVE}. Or set features=own"
            )
        return FeatureSource("own", corpus, {}, "")
    columns = f"{matrix.shape[1]:,} columns"
    csr_parts(matrix, name="the matrix that came with the texts")
    if setting == "own":
        message = f"features: own; the matrix of {columns} that came with the texts is not used"
        return FeatureSource("own", without_matrix(corpus), {}, message)
    if setting == "given" or setting == "both":
        return FeatureSource(setting, corpus, {}, "")
    reason = f"a matrix of {columns} came with the texts; own makes tf-idf of the texts instead"
    message = f"features: given, the matrix of {columns} that came with the texts"
    return FeatureSource("given", corpus, {"features": ("given", reason)}, message)


def scaling(corpus: Corpus, norm: str | None) -> dict[str, tuple[Any, str]]:
    """The setting ``sparse_norm`` and why, if it changes rows of a corpus of features."""
    matrix = given_matrix(corpus)
    if norm != "l2" or corpus.texts is not None or matrix is None:
        return {}
    lengths = row_lengths(matrix.indptr, matrix.data)
    lengths = lengths[lengths > 0]
    if np.all(np.abs(lengths - 1) <= UNIT_TOLERANCE):
        return {}
    ends = (float(lengths.min()), float(lengths.max()))
    span = " to ".join(f"{end:,.0f}" if end >= 100 else f"{end:.3g}" for end in ends)
    reason = f"given rows have lengths of {span}; none uses them as they are"
    return {"sparse_norm": (norm, reason)}


def given_matrix(corpus: Corpus) -> CSR | None:
    """The sparse matrix that came with the documents."""
    return None if corpus.features is None else corpus.features.sparse


def without_matrix(corpus: Corpus) -> Corpus:
    """A corpus of texts without the sparse matrix that came with them."""
    if given_matrix(corpus) is None:
        return corpus
    dense = None if corpus.features is None else corpus.features.dense
    return replace(corpus, features=None if dense is None else Features(dense=dense))


@dataclass(frozen=True)
class Terms:
    """Sparse rows of the training documents, and what reads those of other documents."""

    rows: CSR
    reader: TermReader

    def state(self) -> Part:
        """Of tf-idf alone: a given matrix is not stored again."""
        assert self.reader.tfidf is not None
        state = self.reader.tfidf.state()
        return Part(state.config, state.arrays | csr_arrays(self.rows, "features"))

    @classmethod
    def from_state(cls, part: Part) -> Terms:
        return cls(csr_from_arrays(part.arrays, "features"), TermReader(Tfidf.from_state(part)))


def terms_stage(
    stages: Stages,
    corpus: Corpus,
    params: TfidfParams,
    source: Source,
    *,
    held_out: Corpus | None = None,
    scratch: Scratch | None = None,
) -> CachedResult[Terms]:
    """The sparse rows of documents; tf-idf of their texts is a stage that all methods share."""
    own: CachedResult[Terms] | None = None
    if source != "given":
        own = stages("tfidf", fit_terms, texts=corpus.texts, params=params, scratch=scratch)
        assert own.value.reader.tfidf is not None
        if counts := own.value.reader.tfidf.field_counts():
            stages.reporter.message(said_of_fields(counts))
    if source == "own" and own is not None:
        return own
    matrix = given_matrix(corpus)
    assert matrix is not None

    def make() -> Terms:
        rows = TermReader.joined(None if own is None else own.value.rows, matrix)
        tfidf = None if own is None else own.value.reader.tfidf
        return Terms(rows, TermReader(tfidf, matrix.shape[1]))

    judged = None if held_out is None else given_matrix(held_out)
    return stages.derive(make, terms=own, given=matrix, held_out=judged)


def said_of_fields(counts: Mapping[str, int]) -> str:
    """A sentence about the terms of fields, and about fields that have none."""
    terms = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    none = [name for name, count in counts.items() if not count]
    why = f"; no value of {', '.join(none)} is in enough documents (tfidf.min_df)" if none else ""
    return f"fields: values that became terms: {terms}{why}"


def fit_terms(texts: Strings, params: TfidfParams, *, scratch: Scratch | None = None) -> Terms:
    """Fits tf-idf to texts; with ``scratch``, rows are made there."""
    tfidf = Tfidf(params)
    rows = tfidf.fit_transform_on(scratch, texts) if scratch else tfidf.fit_transform(texts)
    return Terms(rows, TermReader(tfidf))


def labels_with_words(index: LabelIndex) -> list[int]:
    """The columns of labels whose text or name has a letter; numbers and codes teach nothing."""
    return [column for column, text in enumerate(index.words) if any(map(str.isalpha, text))]


def label_documents(index: LabelIndex) -> tuple[list[str], CSR]:
    """A document for each label with words, its text or name, and the matrix of their labels."""
    columns = labels_with_words(index)
    if not columns:
        warn(
            "label_texts: nothing is learnt from names, because no label has a name with letters; "
            "give names with a label table (--labels) or LabelIndex(ids, names=...)"
        )
    own = sparse.csr_array(
        (np.ones(len(columns), np.float32), (np.arange(len(columns)), columns)),
        shape=(len(columns), len(index)),
    )
    return [index.words[column] for column in columns], as_csr(own)


def with_label_documents(corpus: Corpus) -> Corpus:
    """The corpus and, after its documents, one for each label: its text or name, that label alone.

    >>> corpus = with_label_documents(Corpus.from_lists(["red shoes", "hat"], [["shoe"], ["hat"]]))
    >>> list(corpus.texts), corpus.label_lists()[2:]
    (['red shoes', 'hat', 'hat', 'shoe'], [['hat'], ['shoe']])
    """
    texts = corpus.texts
    if texts is None or corpus.features is not None:
        raise ConfigError(
            "label_texts: label names can be learnt beside texts only, not beside features or a "
            "dense block; leave it at none"
        )
    added, own = label_documents(corpus.index)
    make = StringTable.from_strings if isinstance(texts, StringTable) else list
    return Corpus(make(chain(texts, added)), stacked_rows([corpus.labels, own]), corpus.index)
