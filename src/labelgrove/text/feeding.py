"""Texts on their way to the kernels: checked, in batches, or as tokens of a Python analyser.

The analyser "stem" gives words and their stems, for languages whose words have many endings. The
language of a text is guessed from its commonest words. A text that is too short for that, or whose
language Snowball does not know, is read as words alone; so texts of all lengths share terms.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from types import ModuleType
from typing import TypeAlias, TypeVar

import numpy as np

from labelgrove import _native
from labelgrove.core.nfc import nfc as composed
from labelgrove.core.nfc import nfc_table
from labelgrove.core.strings import StringTable
from labelgrove.data.languages import language_of
from labelgrove.errors import ConfigError, DataError, needing

SHORTEST = 2  # letters of a word, as in the analyser "word"
_WORD = re.compile(r"\w+")
_REMEMBERED = 1 << 16  # words per language, whose stems are computed once
_stemmers = threading.local()  # a stemmer works on one word at a time


def words_and_stems(text: str) -> Iterator[str]:
    """Each word in lower case, and its stem if that is another word."""
    stem = _stemmer(language_of(text))
    for word in _WORD.findall(text.lower()):
        if len(word) < SHORTEST:
            continue
        yield word
        if stem is not None and (short := stem(word)) != word:
            yield short


def _stemmer(language: str) -> Callable[[str], str] | None:
    known: dict[str, Callable[[str], str] | None] = vars(_stemmers)
    if language not in known:
        algorithm = language.lower()
        known[language] = None
        snowballstemmer = _snowball()
        if algorithm in snowballstemmer.algorithms():
            made = snowballstemmer.stemmer(algorithm)
            known[language] = lru_cache(maxsize=_REMEMBERED)(made.stemWord)
    return known[language]


def _snowball() -> ModuleType:
    with needing("stem", 'tfidf.analyzer="stem"'):
        import snowballstemmer
    module: ModuleType = snowballstemmer  # it has no types
    return module


TextAnalyzer: TypeAlias = Callable[[str], Iterable[str]]
Tables: TypeAlias = Callable[[bool], _native.CharTables]
Sink: TypeAlias = _native.TermCounter | _native.TfidfRows
_Function = TypeVar("_Function", bound=TextAnalyzer)

BUILT_IN_ANALYZERS = ("word", "space", "char", "char_wb", "mixed")
STEM = "stem"  # an analyser in Python that needs a package
ANALYZERS = "LABELGROVE_ANALYZERS"  # the environment variable with names that may be imported
_TEXTS_PER_BATCH = 4096
_CAPITAL_SIGMA = "Σ"  # how it is lower-cased depends on its neighbours
_TOKEN_SEPARATOR = b"\xff"  # never in UTF-8; the kernels' text_analyze.hpp has the same
_known: dict[str, TextAnalyzer] = {}
given_analyzer: ContextVar[TextAnalyzer | None] = ContextVar("given_analyzer", default=None)


def text_analyzer(function: _Function) -> _Function:
    """Makes a function from a text to its tokens known as ``module:function``.

    Params use that name, and a saved model stores it. Loading the model never imports anything:
    import the module of the function first, or give the function to ``labelgrove.load``.

    >>> @text_analyzer
    ... def stems(text: str) -> list[str]:
    ...     return [word[:5] for word in text.lower().split()]
    >>> from labelgrove.text.tfidf import Tfidf
    >>> Tfidf(analyzer=stems).fit(["Library libraries"]).terms()
    ['libra']
    """
    _known[f"{function.__module__}:{function.__qualname__}"] = function
    return function


def import_analyzer(name: str) -> None:
    """Imports ``module:function`` and makes it known; only for names that the user typed."""
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"analyzer {name!r} cannot be imported: {error}") from error
    if not callable(function):
        raise ConfigError(f"analyzer {name!r} is not a function")
    _known[name] = function


@contextmanager
def using_analyzer(function: TextAnalyzer | None) -> Iterator[None]:
    """Gives every model that is loaded inside this function as its own analyser."""
    if function is None:
        yield
        return
    token = given_analyzer.set(function)
    try:
        yield
    finally:
        given_analyzer.reset(token)


def find_analyzer(name: str) -> TextAnalyzer | None:
    """A function that the user made known by this name; None for an analyser of the kernels."""
    if name in ("auto", *BUILT_IN_ANALYZERS):
        return None
    if name == STEM:
        _snowball()
        return words_and_stems
    if (given := given_analyzer.get()) is not None:
        return given
    # The name may come from a model folder: only what the user listed may be imported.
    if name not in _known and name in os.environ.get(ANALYZERS, "").split():
        import_analyzer(name)
    if name not in _known:
        raise ConfigError(
            f"the text analyser {name!r} is not known here, and a name in a model or a setting is "
            "never imported. If you trust that code, import its module first (with "
            "@labelgrove.text_analyzer above the function), pass the function to "
            f"labelgrove.load(path, analyzer=), or set {ANALYZERS}={name} for the command line"
        )
    return _known[name]


def feed_texts(
    texts: Iterable[str], sink: Sink, *, analyzer: TextAnalyzer | None, tables: Tables, nfc: bool
) -> int:
    """Gives texts, or an analyser's tokens of them, to a kernel; returns how many there are."""
    if isinstance(texts, (str, bytes)):
        raise DataError(f"texts is one {type(texts).__name__}; give a list of strings: [text]")
    if not isinstance(texts, Iterable):
        raise DataError(f"texts must be a list of strings, not {type(texts).__name__}")
    if isinstance(texts, StringTable) and analyzer is None:
        _feed_table(texts, sink, tables, nfc)
        return len(texts)
    position = 0
    iterator = iter(texts)
    while batch := list(islice(iterator, _TEXTS_PER_BATCH)):
        try:
            ascii_only = all(map(str.isascii, batch))
        except TypeError:
            wrong = next(i for i, text in enumerate(batch) if not isinstance(text, str))
            raise DataError(
                f"text {position + wrong} is {type(batch[wrong]).__name__}, not a string: "
                f"{batch[wrong]!r:.60}"
            ) from None
        if nfc and not ascii_only:
            batch = list(map(composed, batch))
        if analyzer is not None:
            tokens = _tokenised(batch, analyzer, position)
            sink.add_blob(tokens.blob, tokens.offsets, None)
        else:
            has_sigma = not ascii_only and any(_CAPITAL_SIGMA in text for text in batch)
            sink.add(batch, None if ascii_only else tables(has_sigma))
        position += len(batch)
    return position


def _feed_table(texts: StringTable, sink: Sink, tables: Tables, nfc: bool) -> None:
    for start in range(0, len(texts), _TEXTS_PER_BATCH):
        batch = texts.part(slice(start, start + _TEXTS_PER_BATCH))
        ascii_only = batch.blob.max(initial=0) < 0x80
        if nfc and not ascii_only:
            batch = nfc_table(batch)
        has_sigma = not ascii_only and _CAPITAL_SIGMA.encode() in batch.blob.tobytes()
        sink.add_blob(batch.blob, batch.offsets, None if ascii_only else tables(has_sigma))


def _tokenised(batch: list[str], analyzer: TextAnalyzer, position: int) -> StringTable:
    """The tokens of each text by a Python analyser, joined by a byte that no token contains."""
    blob = bytearray()
    offsets = [0]
    for number, text in enumerate(batch, position):
        tokens = analyzer(text)
        if isinstance(tokens, str):
            raise DataError(f"text {number}: the analyser must return tokens, not one string")
        try:
            blob += _TOKEN_SEPARATOR.join(t.encode("utf-8", "surrogatepass") for t in tokens)
        except (AttributeError, TypeError) as error:
            raise DataError(f"text {number}: the analyser must return strings: {error}") from error
        offsets.append(len(blob))
    return StringTable(np.frombuffer(blob, dtype=np.uint8), np.array(offsets, dtype=np.int64))
