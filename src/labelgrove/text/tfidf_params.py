"""The settings of tf-idf, what they mean for the kernels, and counts of terms."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from labelgrove import _native
from labelgrove.core.arrays import Array, Float32, Int64
from labelgrove.core.params import Params, param
from labelgrove.core.resources import thread_count
from labelgrove.core.strings import StringTable
from labelgrove.data.records import has_records, plain_text
from labelgrove.errors import ConfigError, DataError
from labelgrove.text import feeding
from labelgrove.text.feeding import TextAnalyzer
from labelgrove.text.unicode_tables import char_tables

AUTO_MIN_DF_TEXTS = 1000


@dataclass
class TfidfParams(Params):
    """How texts become features. The defaults suit subject indexing."""

    analyzer: str = param(
        "auto",
        help="word: runs of word characters, auto: word, but char for texts in scripts without "
        "spaces such as Chinese and mixed where only some are, space: split at the space character "
        "only (as PECOS), char: character n-grams, char_wb: those inside words, mixed: word, but 1 "
        "to 3 characters of scripts without spaces, stem: words and their stems (extra stem), "
        "module:function: your own, which must be imported already",
    )
    ngram_range: tuple[int, int] = param((1, 1), ge=1, help="shortest and longest n-gram")
    nfc: bool = param(True, help="first bring accents to one spelling (Unicode's NFC)")
    lowercase: bool = param(True, help="lower-case first")
    strip_accents: bool = param(False, help="then remove accents and ligatures (NFKD)")
    min_token_length: int = param(2, ge=1, help="shorter words are skipped (analyzers word, mixed)")
    max_tokens: int | None = param(
        None,
        ge=1,
        help="read only this many words (characters for char, char_wb; mixed: so many of both) of "
        "each text",
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
    sublinear_tf: bool = param(True, help="1 + ln(count) instead of the count")
    binary: bool = param(False, help="1 instead of the count")
    idf: Literal["sklearn", "pecos", "none"] = param(
        "sklearn", help="formula of the inverse document frequency"
    )
    smooth_idf: bool = param(True, help="add one to document frequencies")
    add_one_idf: bool = param(False, help="add one to the weight (idf pecos; sklearn always does)")
    norm: Literal["l2", "l1", "none"] = param("l2", help="scale of each row")
    field_weights: dict[str, float] = param(
        {},
        ge=0,
        help="how much values of a catalogue field count beside words, by field; 1 if not here",
    )

    def validate(self, path: str = "") -> Self:
        """Also checks fields against each other."""
        super().validate(path)
        dot = f"{path}." if path else ""
        if self.ngram_range[0] > self.ngram_range[1]:
            raise ConfigError(f"{dot}ngram_range: {self.ngram_range} runs backwards")
        module, colon, function = self.analyzer.partition(":")
        known = ("auto", *feeding.BUILT_IN_ANALYZERS, feeding.STEM)
        if self.analyzer not in known and not (module and colon and function):
            raise ConfigError(
                f"{dot}analyzer: must be one of {', '.join(known)} or module:function, "
                f"got {self.analyzer!r}"
            )
        if self.analyzer == feeding.STEM and self.ngram_range != (1, 1):
            raise ConfigError(
                f"{dot}ngram_range: must be [1, 1] with the analyzer stem, because there are stems "
                f"between the words; got {list(self.ngram_range)}"
            )
        for name in ("min_df", "max_df"):
            value = getattr(self, name)
            if isinstance(value, float) and value > 1.0:
                raise ConfigError(
                    f"{dot}{name}: {value} is a share of the texts and must be at most 1.0; "
                    f"for a count write {value:.0f}"
                )
        return self


def analyzer_options(params: TfidfParams, analyzer: TextAnalyzer | None) -> _native.AnalyzerOptions:
    """What is a term."""
    return _native.AnalyzerOptions(
        analyzer=params.analyzer if analyzer is None else "tokens",
        min_n=params.ngram_range[0],
        max_n=params.ngram_range[1],
        min_token_length=params.min_token_length,
        max_tokens=-1 if params.max_tokens is None else params.max_tokens,
        lowercase=params.lowercase,
    )


def term_counter(
    params: TfidfParams, analyzer: TextAnalyzer | None, *, keep_counts: bool
) -> _native.TermCounter:
    """What counts the terms of texts."""
    return _native.TermCounter(
        analyzer_options(params, analyzer),
        binary=params.binary,
        keep_counts=keep_counts,
        threads=thread_count(),
    )


class Counter(Protocol):
    """What has counted terms: the native counter, or counts that were merged."""

    def totals(self, min_texts: float, max_texts: float) -> tuple[Int64, Int64]: ...
    def choose(self, chosen: npt.NDArray[np.uint8]) -> None: ...
    def terms(self) -> tuple[npt.NDArray[np.uint8], Int64]: ...


def choose_terms(
    counter: Counter, params: TfidfParams, n_texts: int, *, allow_none: bool = False
) -> Int64:
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
    if len(frequencies) == 0 and not allow_none:
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


def _why_empty(counter: Counter, params: TfidfParams, n_texts: int) -> str:
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


def idf_weights(frequencies: Int64, n_texts: int, params: TfidfParams) -> Float32:
    """The weight of each term, from the number of texts that it is in."""
    df = frequencies.astype(np.float64)
    smooth = 1.0 if params.smooth_idf else 0.0
    if params.idf == "sklearn":
        weights = np.log((n_texts + smooth) / (df + smooth)) + 1.0
    elif params.idf == "pecos":
        weights = np.maximum(np.log(n_texts / (df + smooth)), 0.0)
        weights += 1.0 if params.add_one_idf else 0.0
    else:
        weights = np.ones(len(df))
    return weights.astype(np.float32)


def tables(params: TfidfParams, has_sigma: bool) -> _native.CharTables:
    """What the kernels need to know of characters."""
    return char_tables(
        lowercase=params.lowercase,
        strip_accents=params.strip_accents,
        sigmas=params.lowercase and has_sigma,
    )


def no_tables(has_sigma: bool) -> _native.CharTables:
    """For tokens, whose characters stay as they are."""
    raise AssertionError("tokens need no tables")


class TermCounts:
    """Terms, how often each occurs, and in how many texts; a :class:`Counter`."""

    def __init__(self, vocabulary: StringTable, occurrences: Int64, texts: Int64) -> None:
        self.vocabulary, self.occurrences, self.texts = vocabulary, occurrences, texts
        self._chosen: Int64 = np.arange(len(texts))

    @classmethod
    def of(cls, counter: _native.TermCounter) -> TermCounts:
        occurrences, texts = counter.totals(0.0, float("inf"))
        vocabulary = StringTable(*counter.terms())
        return cls(vocabulary, occurrences.astype(np.int64), texts.astype(np.int64))

    def totals(self, min_texts: float, max_texts: float) -> tuple[Int64, Int64]:
        self._chosen = np.flatnonzero((self.texts >= min_texts) & (self.texts <= max_texts))
        return self.occurrences[self._chosen], self.texts[self._chosen]

    def choose(self, chosen: Array) -> None:
        self._chosen = self._chosen[chosen == 1]

    def terms(self) -> tuple[Array, Array]:
        table = self.vocabulary.take(self._chosen)
        return table.blob, table.offsets


def count_terms(texts: StringTable, params: TfidfParams) -> TermCounts:
    """Counts the terms of some texts; ``params.analyzer`` must not be "auto"."""
    if ":" in params.analyzer:
        feeding.import_analyzer(params.analyzer)  # the process that sent us here knows it
    analyzer = feeding.find_analyzer(params.analyzer)
    counter = term_counter(params, analyzer, keep_counts=False)
    words = map(plain_text, texts) if has_records(texts) else texts
    read = partial(tables, params)
    feeding.feed_texts(words, counter, analyzer=analyzer, tables=read, nfc=params.nfc)
    return TermCounts.of(counter)


def merge_counts(*parts: TermCounts) -> TermCounts:
    """The counts of several parts of a corpus, as one count would give them."""
    if len(parts) == 1:
        return parts[0]
    terms = [list(part.vocabulary) for part in parts]
    union = sorted({term for each in terms for term in each})
    place = {term: number for number, term in enumerate(union)}
    occurrences, texts = np.zeros(len(union), np.int64), np.zeros(len(union), np.int64)
    for part, own in zip(parts, terms, strict=True):
        places = np.fromiter((place[term] for term in own), np.int64, len(own))
        occurrences[places] += part.occurrences
        texts[places] += part.texts
    return TermCounts(StringTable.from_strings(union), occurrences, texts)
