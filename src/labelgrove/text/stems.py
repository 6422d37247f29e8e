"""The analyser "stem": words and their stems, for languages whose words have many endings.

The language of a text is guessed from its commonest words. A text that is too short for that, or
whose language Snowball does not know, is read as words alone; so texts of all lengths share terms.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache

from labelgrove.data.languages import language_of
from labelgrove.errors import MissingExtraError

try:
    import snowballstemmer
except ModuleNotFoundError as error:
    raise MissingExtraError("stem", 'tfidf.analyzer="stem"') from error

SHORTEST = 2  # letters of a word, as in the analyser "word"
_WORD = re.compile(r"\w+")
_REMEMBERED = 1 << 16  # words per language, whose stems are computed once
_stemmers = threading.local()  # a stemmer works on one word at a time


def words_and_stems(text: str) -> Iterator[str]:
    """Each word in lower case, and its stem if that is another word.

    >>> list(words_and_stems("die Häuser und das Haus"))
    ['die', 'häuser', 'haus', 'und', 'das', 'haus']
    """
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
        if algorithm in snowballstemmer.algorithms():
            made = snowballstemmer.stemmer(algorithm)
            known[language] = lru_cache(maxsize=_REMEMBERED)(made.stemWord)
    return known[language]
