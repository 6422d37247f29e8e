"""Scripts that write words without spaces between them: analysers for words find none in these."""

from __future__ import annotations

import re
from collections.abc import Iterable

from labelgrove.errors import warn

# Thai, Lao, Burmese, Khmer, the Japanese syllabaries and Chinese characters: first and last code.
UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)
# One such character; compiled on first use: it takes longer than a prediction, which needs none.
UNSPACED = f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in UNSPACED_RANGES)}]"
# If this share of the letters is in such scripts, texts are read by characters; from the smaller
# share on, only these letters are.
_MOST, _SOME = 0.5, 0.1
UNSPACED_NGRAMS = (1, 3)  # the kernels' text_analyze.hpp has the same
_SAMPLED_CHARACTERS = 500


def unspaced_share(texts: Iterable[str]) -> float:
    """The share of letters that belong to scripts without spaces, from the texts' beginnings.

    >>> unspaced_share(["東京 Tokyo 12"])
    0.2857142857142857
    """
    unspaced = others = 0
    for text in texts:
        begin = text[:_SAMPLED_CHARACTERS]
        rest = begin if begin.isascii() else re.sub(UNSPACED, "", begin)
        unspaced += len(begin) - len(rest)
        others += sum(map(str.isalpha, rest))
    return unspaced / (unspaced + others) if unspaced else 0.0


def suited(
    analyzer: str, ngram_range: tuple[int, int], unspaced: float
) -> tuple[str, tuple[int, int]]:
    """The analyser and the n-grams for texts with this share of letters; "auto" is replaced.

    >>> suited("auto", (1, 1), 0.9), suited("auto", (1, 2), 0.2), suited("auto", (1, 2), 0.0)
    (('char', (1, 3)), ('mixed', (1, 2)), ('word', (1, 2)))
    """
    if analyzer == "auto" and unspaced >= _MOST:
        warn(
            "most letters are in scripts without spaces between words, so the texts are read by "
            "characters (tfidf.analyzer=char with tfidf.ngram_range=[1,3]); set tfidf.analyzer to "
            "choose yourself"
        )
        return "char", UNSPACED_NGRAMS if tuple(ngram_range) == (1, 1) else ngram_range
    if analyzer == "auto" and unspaced >= _SOME:
        warn(
            "some letters are in scripts without spaces between words, so these are read by "
            "characters and the rest by words (tfidf.analyzer=mixed); set tfidf.analyzer to "
            "choose yourself"
        )
        return "mixed", ngram_range
    if analyzer in ("word", "space") and unspaced >= _SOME:
        warn(
            "some letters are in scripts without spaces between words, and tfidf.analyzer="
            f"{analyzer} reads such a sentence as one word; tfidf.analyzer=mixed reads their "
            "characters"
        )
    return "word" if analyzer == "auto" else analyzer, ngram_range
