"""Scripts that write words without spaces between them: analysers for words find none in these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from labelgrove.errors import DataError, warn

# Thai, Lao, Burmese, Khmer, the Japanese syllabaries and Chinese characters.
_UNSPACED = (  # compiled on first use: it takes longer than a prediction, which needs none
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
# If this share of the letters is in such scripts, texts are read by characters; from the smaller
# share on, a warning says how.
_MOST, _SOME = 0.5, 0.1
_NGRAMS = (1, 3)
_SAMPLED_TEXTS, _SAMPLED_CHARACTERS = 200, 500


def sampled(texts: Any) -> tuple[list[str], Any]:
    """Some of the texts, and all of them: an iterator can be read only once."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        return [], texts
    if not isinstance(texts, Sequence):
        source = iter(texts)
        head = list(islice(source, _SAMPLED_TEXTS))
        return [text for text in head if isinstance(text, str)], chain(head, source)
    sample = []
    for row in sample_rows(len(texts)):
        try:
            sample.append(texts[row])
        except DataError:  # not UTF-8; kernels replace what they cannot read
            continue
    return [text for text in sample if isinstance(text, str)], texts


def sample_rows(count: int) -> range:
    """The numbers of the texts that are looked at."""
    return range(0, count, -(-count // _SAMPLED_TEXTS) or 1)


def unspaced_share(texts: Iterable[str]) -> float:
    """The share of letters that belong to scripts without spaces, from the texts' beginnings.

    >>> unspaced_share(["東京 Tokyo 12"])
    0.2857142857142857
    """
    unspaced = others = 0
    for text in texts:
        begin = text[:_SAMPLED_CHARACTERS]
        rest = begin if begin.isascii() else re.sub(_UNSPACED, "", begin)
        unspaced += len(begin) - len(rest)
        others += sum(map(str.isalpha, rest))
    return unspaced / (unspaced + others) if unspaced else 0.0


def suited(
    analyzer: str, ngram_range: tuple[int, int], unspaced: float
) -> tuple[str, tuple[int, int]]:
    """The analyser and the n-grams for texts with this share of letters; "auto" is replaced.

    >>> suited("auto", (1, 1), 0.9), suited("auto", (1, 2), 0.0)
    (('char', (1, 3)), ('word', (1, 2)))
    """
    char = "tfidf.analyzer=char with tfidf.ngram_range=[1,3]"
    if analyzer == "auto" and unspaced >= _MOST:
        warn(
            "most letters are in scripts without spaces between words, so the texts are read by "
            f"characters ({char}); set tfidf.analyzer to choose yourself"
        )
        return "char", _NGRAMS if tuple(ngram_range) == (1, 1) else ngram_range
    if analyzer in ("auto", "word", "space") and unspaced >= _SOME:
        warn(
            "some letters are in scripts without spaces between words, and tfidf.analyzer="
            f"{analyzer} reads such a sentence as one word; {char} reads characters"
        )
    return "word" if analyzer == "auto" else analyzer, ngram_range
