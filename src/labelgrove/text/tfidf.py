"""Text to sparse tf-idf rows, with scikit-learn's rules and numbers at native speed.

>>> tfidf = Tfidf(TfidfParams(min_df=1))
>>> rows = tfidf.fit_transform(["a red shoe", "a blue, blue hat"])
>>> tfidf.terms(), rows.shape
(['blue', 'hat', 'red', 'shoe'], (2, 4))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from labelgrove import _native
from labelgrove.core.arrays import CSR, CsrParts, Float32, Int64, narrow_csr
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.core.strings import StringTable
from labelgrove.errors import ConfigError, DataError, ModelFormatError
from labelgrove.text.feeding import (
    BUILT_IN_ANALYZERS,
    TextAnalyzer,
    feed_texts,
    find_analyzer,
    given_analyzer,
)
from labelgrove.text.scripts import sampled, suited, unspaced_share
from labelgrove.text.unicode_tables import char_tables

AUTO_MIN_DF_TEXTS = 1000


@dataclass
class TfidfParams(Params):
    """How texts become features. The defaults suit subject indexing."""

    analyzer: str = param(
        "auto",
        help="word: runs of word characters, auto: word, but char for texts in scripts without "
        "spaces such as Chinese, space: split at the space character only (as PECOS), "
        "char: character n-grams, char_wb: those inside words, "
        "module:function: your own, which must be imported already",
    )
    ngram_range: tuple[int, int] = param((1, 1), ge=1, help="shortest and longest n-gram")
    nfc: bool = param(True, help="first bring accents to one spelling (Unicode's NFC)")
    lowercase: bool = param(True, help="lower-case first")
    strip_accents: bool = param(False, help="then remove accents and ligatures (NFKD)")
    min_token_length: int = param(2, ge=1, help="shorter words are skipped (analyzer word only)")
    max_tokens: int | None = param(
        None, ge=1, help="read only this many words (characters for char, char_wb) of each text"
    )
    min_df: int | float | Literal["auto"] = param(
        "auto",
        ge=0,
        help="fewest texts with a term, as a count or (0.0 to 1.0) a share; "
        f"auto: 2, but 1 for fewer than {AUTO_MIN_DF_TEXTS} texts or where 2 would leave no term",
    )
    max_df: int | float = param(
        1.0, ge=0, help="most texts with a term, as a count or (0.0 to 1.0) a share"
    )
    max_features: int | None = param(None, ge=1, help="keep only the terms that occur most often")
    n_buckets: int | None = param(
        None, ge=1, le=2**31 - 1, help="hash terms to this many features instead of storing them"
    )
    sublinear_tf: bool = param(True, help="1 + ln(count) instead of the count")
    binary: bool = param(False, help="1 instead of the count")
    idf: Literal["sklearn", "pecos", "none"] = param(
        "sklearn", help="formula of the inverse document frequency"
    )
    smooth_idf: bool = param(True, help="add one to document frequencies")
    add_one_idf: bool = param(False, help="add one to the weight (idf pecos; sklearn always does)")
    norm: Literal["l2", "l1", "none"] = param("l2", help="scale of each row")

    def validate(self, path: str = "") -> Self:
        """Also checks fields against each other."""
        super().validate(path)
        dot = f"{path}." if path else ""
        if self.ngram_range[0] > self.ngram_range[1]:
            raise ConfigError(f"{dot}ngram_range: {self.ngram_range} runs backwards")
        module, colon, function = self.analyzer.partition(":")
        known = ("auto", *BUILT_IN_ANALYZERS)
        if self.analyzer not in known and not (module and colon and function):
            raise ConfigError(
                f"{dot}analyzer: must be one of {', '.join(known)} or module:function, "
                f"got {self.analyzer!r}"
            )
        for name in ("min_df", "max_df"):
            value = getattr(self, name)
            if isinstance(value, float) and value > 1.0:
                raise ConfigError(
                    f"{dot}{name}: {value} is a share of the texts and must be at most 1.0; "
                    f"for a count write {value:.0f}"
                )
        if self.n_buckets is not None:
            for name, unset in (("min_df", "auto"), ("max_df", 1.0), ("max_features", None)):
                if getattr(self, name) != unset:
                    raise ConfigError(f"{dot}{name}: hashed features (n_buckets) cannot be pruned")
        return self


class Tfidf:
    """Learns a vocabulary and idf weights from texts; turns texts into tf-idf rows.

    ``texts`` may be any iterable of strings, or a :class:`StringTable`, which is read in place.
    ``analyzer`` is a function from a text to its tokens, used instead of ``params.analyzer``. No
    function is saved: you need it to load the Tfidf. ``n_jobs`` is the number of threads,
    None for all cores; it does not change the results. A fitted Tfidf may be used from many
    threads.

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
        self._learn(texts, keep_counts=False)
        return self

    def fit_transform(self, texts: Iterable[str]) -> CSR:
        """The same as fit and then transform, reading the texts once."""
        counter = self._learn(texts, keep_counts=True)
        fitted = self._get_fitted()
        rows = counter.rows(fitted.idf, _weight_options(fitted.params))
        return _matrix(CsrParts(*rows, fitted.n_features))

    def transform(self, texts: Iterable[str]) -> CSR:
        """Texts as rows of a float32 ``scipy.sparse.csr_array`` with sorted indices."""
        return _matrix(self.transform_parts(texts))

    def transform_parts(self, texts: Iterable[str], *, threads: int | None = None) -> CsrParts:
        """The bare arrays of :meth:`transform`, which is faster when texts come one by one.

        ``threads`` overrides ``n_jobs`` for this call; 0 means all cores.
        """
        fitted = self._get_fitted()
        threads = self._threads if threads is None else max(0, threads)
        rows = _native.TfidfRows(fitted.model, threads=threads)
        params = fitted.params
        tables = partial(_tables, params)
        feed_texts(texts, rows, analyzer=fitted.analyzer, tables=tables, nfc=params.nfc)
        return CsrParts(*rows.finish(), fitted.n_features)

    @property
    def fitted_params(self) -> TfidfParams:
        """The settings with which texts are read: ``params`` without "auto" for the analyser."""
        return self._get_fitted().params

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._get_fitted().n_features

    @property
    def idf(self) -> Float32:
        """The weight of each column."""
        return self._get_fitted().idf

    @property
    def vocabulary(self) -> StringTable:
        """The term of each column, sorted by code points."""
        fitted = self._get_fitted()
        if fitted.params.n_buckets is not None:
            raise DataError("features are hashed (n_buckets): there is no vocabulary")
        return fitted.vocabulary

    def terms(self) -> list[str]:
        """The vocabulary as a list."""
        return list(self.vocabulary)

    def state(self) -> Part:
        """Everything :meth:`from_state` needs."""
        fitted = self._get_fitted()
        unnamed = fitted.analyzer is not None and fitted.params.analyzer in BUILT_IN_ANALYZERS
        return Part(
            {"params": fitted.params.get_params(), "own_analyzer": unnamed},
            {"idf": fitted.idf} | fitted.vocabulary.arrays("vocabulary"),
        )

    @classmethod
    def from_state(
        cls, part: Part, *, analyzer: TextAnalyzer | None = None, n_jobs: int | None = None
    ) -> Tfidf:
        """A fitted Tfidf from :meth:`state`. One fitted with ``analyzer=`` needs it again here."""
        # Terms of models that do not know the setting have the spelling of their texts.
        params = TfidfParams.from_dict({"nfc": False, **part.config.get("params", {})}, "tfidf")
        params.analyzer = "word" if params.analyzer == "auto" else params.analyzer
        analyzer = analyzer or find_analyzer(params.analyzer)
        if part.config.get("own_analyzer"):
            analyzer = analyzer or given_analyzer()
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
            )
        except KeyError as error:
            raise ModelFormatError(f"tf-idf model: the array {error} is missing") from error
        except (TypeError, DataError, RuntimeError) as error:
            raise ModelFormatError(f"tf-idf model: {error}") from error
        return tfidf

    def __getstate__(self) -> dict[str, Any]:
        # For copies and worker processes; the other side builds its own native table.
        if self._fitted is None:
            return dict(self.__dict__)
        return self.__dict__ | {"_fitted": self.state(), "analyzer": self._fitted.analyzer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        part = state["_fitted"]
        self.__dict__.update(state | {"_fitted": None})
        if part is not None:
            self._fitted = type(self).from_state(part, analyzer=self.analyzer)._fitted

    @property
    def _threads(self) -> int:
        return max(0, self.n_jobs or 0)

    def _get_fitted(self) -> _Fitted:
        if self._fitted is None:
            from labelgrove.errors import NotFittedError  # imports scikit-learn

            raise NotFittedError("this Tfidf is not fitted yet: call fit(texts) first")
        return self._fitted

    def _learn(self, texts: Iterable[str], *, keep_counts: bool) -> _native.TermCounter:
        params = dataclasses.replace(self.params).validate()
        if self.analyzer is None:
            sample, texts = sampled(texts)
            params.analyzer, params.ngram_range = suited(
                params.analyzer, params.ngram_range, unspaced_share(sample)
            )
        elif params.analyzer == "auto":
            params.analyzer = "word"
        analyzer = self.analyzer or find_analyzer(params.analyzer)
        counter = _native.TermCounter(
            _analyzer_options(params, analyzer),
            buckets=params.n_buckets or 0,
            binary=params.binary,
            keep_counts=keep_counts,
            threads=self._threads,
        )
        tables = partial(_tables, params)
        n_texts = feed_texts(texts, counter, analyzer=analyzer, tables=tables, nfc=params.nfc)
        frequencies = _choose_terms(counter, params, n_texts)
        idf = _idf(frequencies, n_texts, params)
        vocabulary = StringTable.from_strings([])
        if params.n_buckets is None:
            vocabulary = StringTable(*counter.terms())
        self._fitted = _Fitted.make(params, analyzer, vocabulary, idf)
        return counter


@dataclass(frozen=True)
class _Fitted:
    """The result of fitting; replaced as a whole, so that threads never see half of it."""

    params: TfidfParams
    analyzer: TextAnalyzer | None
    vocabulary: StringTable
    idf: Float32
    model: _native.TfidfModel

    @classmethod
    def make(
        cls,
        params: TfidfParams,
        analyzer: TextAnalyzer | None,
        vocabulary: StringTable,
        idf: Float32,
    ) -> _Fitted:
        model = _native.TfidfModel.build(
            _analyzer_options(params, analyzer),
            _weight_options(params),
            buckets=params.n_buckets or 0,
            blob=vocabulary.blob,
            offsets=vocabulary.offsets,
            idf=idf,
        )
        return cls(params, analyzer, vocabulary, idf, model)

    @property
    def n_features(self) -> int:
        return len(self.idf)


def _analyzer_options(
    params: TfidfParams, analyzer: TextAnalyzer | None
) -> _native.AnalyzerOptions:
    return _native.AnalyzerOptions(
        analyzer=params.analyzer if analyzer is None else "tokens",
        min_n=params.ngram_range[0],
        max_n=params.ngram_range[1],
        min_token_length=params.min_token_length,
        max_tokens=-1 if params.max_tokens is None else params.max_tokens,
        lowercase=params.lowercase,
    )


def _weight_options(params: TfidfParams) -> _native.WeightOptions:
    return _native.WeightOptions(
        sublinear_tf=params.sublinear_tf, binary=params.binary, norm=params.norm
    )


def _choose_terms(counter: _native.TermCounter, params: TfidfParams, n_texts: int) -> Int64:
    """Applies min_df, max_df and max_features; returns how many texts each chosen term is in."""
    auto = params.min_df == "auto"
    lowest: float = 2 if n_texts >= AUTO_MIN_DF_TEXTS else 1
    if not isinstance(params.min_df, str):
        lowest = _as_count(params.min_df, n_texts)
    highest = _as_count(params.max_df, n_texts)
    if not auto and highest < lowest:
        raise ConfigError(f"max_df={params.max_df} allows fewer texts than min_df={params.min_df}")
    occurrences, frequencies = counter.totals(lowest, highest)
    if auto and len(frequencies) == 0:
        occurrences, frequencies = counter.totals(1, highest)
    if len(frequencies) == 0:
        raise DataError(_why_empty(counter, params, n_texts))
    if params.max_features is not None and len(frequencies) > params.max_features:
        # The same call as in scikit-learn, so that the same of several equal terms stay.
        best = (-occurrences.astype(np.float64)).argsort()[: params.max_features]
        chosen = np.zeros(len(frequencies), dtype=np.uint8)
        chosen[best] = 1
        counter.choose(chosen)
        frequencies = frequencies[chosen == 1]
    return frequencies


def _as_count(bound: int | float, n_texts: int) -> float:
    return bound if isinstance(bound, int) else bound * n_texts


def _why_empty(counter: _native.TermCounter, params: TfidfParams, n_texts: int) -> str:
    n_terms = len(counter.totals(0, float("inf"))[0])
    if n_terms == 0:
        return (
            f"{n_texts:,} texts without a single term: they are empty, or too short for tf-idf "
            f"with analyzer={params.analyzer!r}, min_token_length={params.min_token_length}, "
            f'ngram_range={params.ngram_range}; tfidf.analyzer="char" reads single characters'
        )
    return (
        f"none of {n_terms:,} terms in {n_texts:,} texts is left with min_df={params.min_df} and "
        f"max_df={params.max_df}: lower min_df or raise max_df"
    )


def _idf(frequencies: Int64, n_texts: int, params: TfidfParams) -> Float32:
    df = frequencies.astype(np.float64)
    smooth = 1.0 if params.smooth_idf else 0.0
    # Only a bucket without texts has df 0; it must not divide by zero, and its weight is not used.
    if params.idf == "sklearn":
        weights = np.log((n_texts + smooth) / np.maximum(df + smooth, 1.0)) + 1.0
    elif params.idf == "pecos":
        weights = np.maximum(np.log(n_texts / np.maximum(df + smooth, 1.0)), 0.0)
        weights += 1.0 if params.add_one_idf else 0.0
    else:
        weights = np.ones(len(df))
    return weights.astype(np.float32)


def _tables(params: TfidfParams, has_sigma: bool) -> _native.CharTables:
    return char_tables(
        lowercase=params.lowercase,
        strip_accents=params.strip_accents,
        sigmas=params.lowercase and has_sigma,
    )


def _matrix(parts: CsrParts) -> CSR:
    shape = (len(parts.indptr) - 1, parts.cols)
    matrix = narrow_csr(parts.data, parts.indices, parts.indptr, shape)
    matrix.has_canonical_format = True  # the kernel writes sorted, unique columns: no need to check
    return matrix
