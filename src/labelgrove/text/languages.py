"""Whether texts are in English, by the commonest words of the language."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from labelgrove.data.records import words_of
from labelgrove.text.scripts import sampled

# Short words that are frequent in any English text and rare in other languages.
_COMMON = frozenset(
    """the of and to is for with that this by from be are as on it which or an has was were their
    can its these have not at""".split()  # noqa: SIM905
)
_WORD = re.compile(r"[^\W\d_]+")
_WORDS_READ = 200
# English texts have 20 to 33 % of these words (laws, commit messages, package descriptions); German
# ones have under 4 %.
_FROM_SHARE, _OF_TEXTS = 0.1, 2 / 3


def are_english(texts: Any) -> bool:
    """Whether two thirds of the texts, or of a sample of them, are in English.

    >>> are_english(["the roof of the house", "a list of words that are common"])
    True
    >>> are_english(["das Dach des Hauses", "eine Liste der Wörter"])
    False
    """
    shares = []
    for text in sampled(texts)[0]:
        words = [match[0] for match in islice(_WORD.finditer(words_of(text).lower()), _WORDS_READ)]
        if words:
            shares.append(sum(word in _COMMON for word in words) / len(words))
    return sum(share >= _FROM_SHARE for share in shares) >= _OF_TEXTS * max(1, len(shares))
