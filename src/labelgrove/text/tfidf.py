"""Text to sparse tf-idf rows, with scikit-learn's rules and numbers at native speed.

>>> tfidf = Tfidf(TfidfParams(min_df=1))
>>> rows = tfidf.fit_transform(["a red shoe", "a blue, blue hat"])
>>> tfidf.terms(), rows.shape
(['blue', 'hat', 'red', 'shoe'], (2, 4))
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from labelgrove import _native
from labelgrove.core.arrays import CSR, CsrParts, Float32, as_csr, csr_parts, narrow_csr
from labelgrove.core.late import sparse
from labelgrove.core.part import Part
from labelgrove.core.resources import thread_count, using
from labelgrove.core.scratch import GrowingCsr, Scratch, row_ranges
from labelgrove.core.strings import StringTable
from labelgrove.data import records
from labelgrove.data.corpus import Corpus
from labelgrove.data.features import Features
from labelgrove.data.inputs import Documents
from labelgrove.data.languages import sampled, suited, unspaced_share
from labelgrove.data.records import FieldNames, plain_texts
from labelgrove.errors import ConfigError, DataError, ModelFormatError
from labelgrove.text import feeding, tfidf_params
from labelgrove.text.feeding import TextAnalyzer, feed_texts, find_analyzer
from labelgrove.text.field_terms import FieldTerms, check_weights, value_counter
from labelgrove.text.tfidf_params import TermCounts, TfidfParams, tables

__all__ = ["TermReader", "Tfidf", "TfidfParams"]


class Tfidf:
    """Learns a vocabulary and idf weights from texts; turns texts into tf-idf rows.

    If texts are records (see ``labelgrove.records``), their fields have columns after the words.
    ``texts`` may be any iterable of strings, or a :class:`StringTable`, which is read in place.
    ``analyzer`` is a function from a text to its tokens, used instead of ``params.analyzer``. No
    function is saved: you need it to load the Tfidf. ``n_jobs`` is the number of threads,
    None for those of the caller (all cores); it does not change the results. A fitted Tfidf may be
    used from many threads.

    >>> tfidf = Tfidf().fit(["red shoe", "red hat"])
    >>> tfidf.transform(["a shoe! A shoe, unseen"]).toarray().tolist()
    [[0.0, 0.0, 1.0]]
    """

    def __init__(
        self,
        params: TfidfParams | None = None,
        *,
        analyzer: TextAnalyzer | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.params = TfidfParams() if params is None else params
        self.analyzer = analyzer
        self.n_jobs = n_jobs
        self._fitted: _Fitted | None = None

    def fit(self, texts: Iterable[str]) -> Self:
        """Learns vocabulary and weights, replacing earlier ones."""
        with using(threads=self.n_jobs):
            self._learn(texts, keep_counts=False)
        return self

    def fit_transform(self, texts: Iterable[str]) -> CSR:
        """The same as fit and then transform, reading the texts once."""
        with using(threads=self.n_jobs):
            counter, texts = self._learn(texts, keep_counts=True)
            fitted = self._get_fitted()
            rows = CsrParts(*counter.rows(fitted.idf, fitted.weights), len(fitted.idf))
            return _matrix(fitted.with_fields(rows, texts))

    def fit_transform_on(self, scratch: Scratch, texts: Sequence[str]) -> CSR:
        """As :meth:`fit_transform`, with rows in ``scratch``; texts are read twice, for memory."""
        self.fit(texts)
        with GrowingCsr(scratch, self.n_features) as growing:
            for rows in row_ranges(len(texts)):
                block = texts.part(rows) if isinstance(texts, StringTable) else texts[rows]
                growing.append(*self.transform_parts(block)[:3])
            return growing.matrix()

    def transform(self, texts: Iterable[str]) -> CSR:
        """Texts as rows of a float32 ``scipy.sparse.csr_array`` with sorted indices."""
        return _matrix(self.transform_parts(texts))

    def transform_parts(self, texts: Iterable[str]) -> CsrParts:
        """The bare arrays of :meth:`transform`, which is faster when texts come one by one."""
        fitted = self._get_fitted()
        read, nfc = partial(tables, fitted.params), fitted.params.nfc
        words: Iterable[str] = texts
        if fitted.fields is not None:
            texts = texts if isinstance(texts, Sequence) else list(texts)
            words = plain_texts(texts)
        with using(threads=self.n_jobs):
            sink = _native.TfidfRows(fitted.model, threads=thread_count())
            feed_texts(words, sink, analyzer=fitted.analyzer, tables=read, nfc=nfc)
            return fitted.with_fields(CsrParts(*sink.finish(), len(fitted.idf)), texts)

    @classmethod
    def from_counts(
        cls, params: TfidfParams, counts: TermCounts, n_texts: int, fields: FieldTerms | None
    ) -> Tfidf:
        """Fitted to texts whose terms are counted; ``params`` must not have the analyser "auto"."""
        analyzer = find_analyzer(params.analyzer)
        frequencies = tfidf_params.choose_terms(counts, params, n_texts)
        idf = tfidf_params.idf_weights(frequencies, n_texts, params)
        tfidf = cls(params)
        vocabulary = StringTable(*counts.terms())
        tfidf._fitted = _Fitted.make(params, analyzer, vocabulary, idf, fields)
        return tfidf

    @property
    def fitted_params(self) -> TfidfParams:
        """The settings with which texts are read: ``params`` without "auto" for the analyser."""
        return self._get_fitted().params

    @property
    def n_features(self) -> int:
        return self._get_fitted().n_features

    @property
    def idf(self) -> Float32:
        """The weight of each column."""
        fitted = self._get_fitted()
        if fitted.fields is None:
            return fitted.idf
        return np.concatenate([fitted.idf, fitted.fields.idf])

    @property
    def fields(self) -> FieldNames | None:
        """The names of the fields that documents were fitted with."""
        fields = self._get_fitted().fields
        return None if fields is None else fields.names

    @property
    def vocabulary(self) -> StringTable:
        """The word of each column, sorted by code points; columns of fields come after them."""
        return self._get_fitted().vocabulary

    def terms(self) -> list[str]:
        """The term of each column: the vocabulary, then values of fields, "creator: ada"."""
        fields = self._get_fitted().fields
        return [*self.vocabulary, *(() if fields is None else fields.vocabulary)]

    def term(self, column: int) -> str:
        words, fields = self.vocabulary, self._get_fitted().fields
        if column < len(words) or fields is None:
            return words[column]
        return fields.vocabulary[column - len(words)]

    def field_counts(self) -> dict[str, int]:
        """How many values of each field have a column."""
        fields = self._get_fitted().fields
        if fields is None:
            return {}
        counts = Counter(term.partition(records.BETWEEN)[0] for term in fields.vocabulary)
        return {name: counts[name] for name in fields.names.fields}

    def field_columns(self, text: str) -> dict[int, str]:
        """The known values of a document's fields by their columns."""
        fitted = self._get_fitted()
        if fitted.fields is None:
            return {}
        places = {term: fitted.fields.column(term) for term in records.field_terms(text)}
        return {len(fitted.idf) + place: term for term, place in places.items() if place >= 0}

    def state(self) -> Part:
        """Everything :meth:`from_state` needs."""
        fitted = self._get_fitted()
        named = fitted.params.analyzer not in feeding.BUILT_IN_ANALYZERS
        unnamed = fitted.analyzer is not None and not named
        part = Part(
            {"params": fitted.params.get_params(), "own_analyzer": unnamed},
            {"idf": fitted.idf} | fitted.vocabulary.arrays("vocabulary"),
        )
        return part if fitted.fields is None else fitted.fields.added_to(part)

    @classmethod
    def from_state(
        cls, part: Part, *, analyzer: TextAnalyzer | None = None, n_jobs: int | None = None
    ) -> Tfidf:
        """A fitted Tfidf from :meth:`state`. One fitted with ``analyzer=`` needs it again here."""
        # Terms of models that do not know the setting have the spelling of their texts.
        stored = {"nfc": False, **part.config.get("params", {})}
        if stored.pop("n_buckets", None) is not None:
            raise ModelFormatError(
                "the model reads hashed terms (n_buckets), which have gone from labelgrove; train "
                "it again, with tfidf.max_features where there are too many terms"
            )
        params = TfidfParams.from_dict(stored, "tfidf")
        params.analyzer = "word" if params.analyzer == "auto" else params.analyzer
        analyzer = analyzer or find_analyzer(params.analyzer)
        if part.config.get("own_analyzer"):
            analyzer = analyzer or feeding.given_analyzer.get()
            if analyzer is None:
                raise ConfigError(
                    "this model was fitted with a text analyser of its own, which is not saved: "
                    "pass the same function as analyzer="
                )
        tfidf = cls(params, analyzer=analyzer, n_jobs=n_jobs)
        try:
            tfidf._fitted = _Fitted.make(
                params,
                analyzer,
                StringTable.from_arrays(part.arrays, "vocabulary"),
                part.arrays["idf"],
                FieldTerms.from_state(part),
            )
        except KeyError as error:
            raise ModelFormatError(f"tf-idf model: the array {error} is missing") from error
        except (TypeError, DataError, RuntimeError) as error:
            raise ModelFormatError(f"tf-idf model: {error}") from error
        return tfidf

    def __getstate__(self) -> dict[str, object]:
        # For copies and worker processes; the other side builds its own native table.
        if self._fitted is None:
            return dict(self.__dict__)
        return self.__dict__ | {"_fitted": self.state(), "analyzer": self._fitted.analyzer}

    def __setstate__(self, state: dict[str, object]) -> None:
        part = state["_fitted"]
        self.__dict__.update(state | {"_fitted": None})
        if isinstance(part, Part):
            self._fitted = type(self).from_state(part, analyzer=self.analyzer)._fitted

    def _get_fitted(self) -> _Fitted:
        if self._fitted is None:
            from labelgrove.errors import NotFittedError  # imports scikit-learn

            raise NotFittedError("this Tfidf is not fitted yet: call fit(texts) first")
        return self._fitted

    def _learn(
        self, texts: Iterable[str], *, keep_counts: bool
    ) -> tuple[_native.TermCounter, Iterable[str]]:
        """The counter of words, and the texts, of which an iterator gives each only once."""
        params = dataclasses.replace(self.params).validate()
        sample, texts = sampled(texts)
        words, names = texts, None
        if records.has_records(texts if isinstance(texts, Sequence) else sample):
            texts = texts if isinstance(texts, Sequence) else list(texts)
            # One by one: all words would be a second copy of the texts.
            words, names = map(records.plain_text, texts), records.names_in(texts)
            sample = list(plain_texts(sample))
        check_weights(params, names)
        if self.analyzer is None:
            params.analyzer, params.ngram_range = suited(
                params.analyzer, params.ngram_range, unspaced_share(sample)
            )
        elif params.analyzer == "auto":
            params.analyzer = "word"
        analyzer = self.analyzer or find_analyzer(params.analyzer)
        counter = tfidf_params.term_counter(params, analyzer, keep_counts=keep_counts)
        read = partial(tables, params)
        n_texts = feed_texts(words, counter, analyzer=analyzer, tables=read, nfc=params.nfc)
        frequencies = tfidf_params.choose_terms(counter, params, n_texts)
        idf = tfidf_params.idf_weights(frequencies, n_texts, params)
        fields = None
        if names is not None:
            assert isinstance(texts, Sequence)
            values = value_counter(texts)
            fields = FieldTerms.from_counter(names, params, values, len(texts))
        vocabulary = StringTable(*counter.terms())
        self._fitted = _Fitted.make(params, analyzer, vocabulary, idf, fields)
        return counter, texts


@dataclass(frozen=True)
class _Fitted:
    """The result of fitting; replaced as a whole, so that threads never see half of it."""

    params: TfidfParams
    analyzer: TextAnalyzer | None
    vocabulary: StringTable
    idf: Float32
    model: _native.TfidfModel
    weights: _native.WeightOptions
    fields: FieldTerms | None

    @classmethod
    def make(
        cls,
        params: TfidfParams,
        analyzer: TextAnalyzer | None,
        vocabulary: StringTable,
        idf: Float32,
        fields: FieldTerms | None,
    ) -> _Fitted:
        # Words and fields are scaled together, so words alone are not.
        norm = "none" if fields is not None else params.norm
        weights = _native.WeightOptions(
            sublinear_tf=params.sublinear_tf, binary=params.binary, norm=norm
        )
        model = _native.TfidfModel.build(
            tfidf_params.analyzer_options(params, analyzer),
            weights,
            blob=vocabulary.blob,
            offsets=vocabulary.offsets,
            idf=idf,
        )
        return cls(params, analyzer, vocabulary, idf, model, weights, fields)

    @property
    def n_features(self) -> int:
        return len(self.idf) + (0 if self.fields is None else len(self.fields.idf))

    def with_fields(self, words: CsrParts, texts: Iterable[str]) -> CsrParts:
        """The rows of words and, if documents have fields, the rows of these beside them."""
        if self.fields is None:
            return words
        return self.fields.beside(words, texts, self.params.norm)


def _matrix(parts: CsrParts) -> CSR:
    shape = (len(parts.indptr) - 1, parts.cols)
    matrix = narrow_csr(parts.data, parts.indices, parts.indptr, shape)
    matrix.has_canonical_format = True  # the kernel writes sorted, unique columns: no need to check
    return matrix


HOW_TO_GIVE = (
    "give it with the texts: Documents(texts, matrix) or a Corpus in Python; --features FILE, or a "
    "folder that has it, on the command line"
)


@dataclass(frozen=True)
class TermReader:
    """What a ranker reads of documents: columns of tf-idf, then ``given`` columns of a matrix.

    Given rows are scaled to unit length, as the published features are, and so are both kinds
    together. Without any column there is nothing to read, and rows are empty.
    """

    tfidf: Tfidf | None = None
    given: int = 0

    def rows(self, documents: Documents | Corpus) -> CSR:
        """The documents' sparse rows; raises DataError if a matrix is missing or another one."""
        own = None
        if self.tfidf is not None:
            assert documents.texts is not None
            own = self.tfidf.transform(documents.texts)
        if not self.given:
            return self._empty(len(documents)) if own is None else own
        matrix = None if documents.features is None else documents.features.sparse
        return self.joined(own, checked_matrix(matrix, self.given))

    def of_texts(self, texts: Sequence[str]) -> CSR:
        """Rows of texts that no matrix knows, such as labels' names: given columns are zero."""
        if self.tfidf is None:
            return self._empty(len(texts))
        own = self.tfidf.transform(texts)
        if not self.given:
            return own
        return as_csr(sparse.hstack([own, self._empty(len(texts))], format="csr"))

    def _empty(self, count: int) -> CSR:
        return as_csr(sparse.csr_array((count, self.given), dtype="float32"))

    @staticmethod
    def joined(own: CSR | None, given: CSR) -> CSR:
        """Both side by side, or the given rows alone, scaled to unit length."""
        unit = Features(sparse=given).normalised().sparse
        if own is None:
            return unit
        return Features(sparse=sparse.hstack([own, unit], format="csr")).normalised().sparse


def checked_matrix(matrix: CSR | None, columns: int) -> CSR:
    """A matrix with so many columns and finite values."""
    if matrix is None:
        raise DataError(
            f"this model reads a matrix of {columns:,} columns that comes with the texts, and "
            f"these documents have none; {HOW_TO_GIVE}"
        )
    if matrix.shape[1] != columns:
        raise DataError(
            f"this model reads a matrix of {columns:,} columns that comes with the texts, and that "
            f"of these documents has {matrix.shape[1]:,}; give the one made as for training"
        )
    csr_parts(matrix, name="the matrix that came with the texts")
    return matrix
