"""The language of texts, by the commonest words of languages, and scripts without spaces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, islice

from labelgrove.data.records import words_of
from labelgrove.errors import DataError, warn

# Short words that are frequent in any English text and rare in other languages.
_COMMON = frozenset(
    """the of and to is for with that this by from be are as on it which or an has was were their
    can its these have not at""".split()  # noqa: SIM905
)
_COMMON_WORDS = {
    "English": " ".join(_COMMON),
    "German": "der die und das den von zu mit des im für ist auf dem ein eine als auch nicht sich "
    "werden aus wird zur einer durch sind oder",
    "French": "le la les des et du une est dans pour qui que par sur au avec pas ce cette ont aux "
    "sont",
    "Spanish": "el los las y del una es por para con que en se su al como más son",
    "Italian": "il di che è della gli per una nel sono con del dei alla non da delle ed",
    "Dutch": "de het een van en dat op te zijn met voor niet aan die door ook wordt worden",
    "Portuguese": "os que não uma do da em para com por mais dos das ao são",
    "Swedish": "och att det som en på är av för med till den inte ett",
    "Danish or Norwegian": "og at det som en på er af av for med til den ikke et",
    "Finnish": "ja on ei se että oli ovat tai kun mutta joka myös niin sekä",
    "Polish": "w i na z do się nie jest że od przez jak dla",
    "Czech": "se na je že do pro jako jsou které nebo ve byl",
    "Hungarian": "az és hogy nem is egy van meg ez",
    "Turkish": "ve bir bu için ile da de olarak",
    "Russian": "и в не на что с по как это для из",
    "Ukrainian": "і в не на що з та до як це для",
    "Greek": "και το του της η την των με για στο από να τα είναι που στην",
}
_WORD = re.compile(r"[^\W\d_]+")
_SAMPLED_TEXTS, _WORDS_READ = 200, 200
# English texts have 20 to 33 % of these words (laws, commit messages, package descriptions); German
# ones have under 4 %.
_FROM_SHARE, _OF_TEXTS = 0.1, 2 / 3
_LAST_LATIN = "\u024f"  # of the letters that European languages write
_FROM_SHARE_OF_ANY = 0.05  # where the language with the most such words wins


def are_english(texts: Iterable[str]) -> bool:
    """Whether two thirds of the texts, or of a sample of them, are in English.

    >>> are_english(["the roof of the house", "a list of words that are common"])
    True
    >>> are_english(["das Dach des Hauses", "eine Liste der Wörter"])
    False
    """
    shares = []
    for text in sampled(texts)[0]:
        words = _first_words(words_of(text))
        if words:
            shares.append(sum(word in _COMMON for word in words) / len(words))
    return sum(share >= _FROM_SHARE for share in shares) >= _OF_TEXTS * max(1, len(shares))


def language_of(text: str) -> str:
    """The language of a text; "unknown" if it has too few common words of any that we know."""
    words = Counter(_first_words(text))
    hits = {
        language: sum(words[word] for word in common.split())
        for language, common in _COMMON_WORDS.items()
    }
    best = max(hits, key=hits.__getitem__)
    enough = hits[best] and hits[best] >= _FROM_SHARE_OF_ANY * words.total()
    return best if enough else "unknown"


def is_foreign(text: str) -> bool:
    """Whether a text is in another language than English, as far as words and letters tell.

    >>> [is_foreign(text) for text in ("wool jacket", "Jacke aus Wolle mit Kapuze", "羊毛外套")]
    [False, True, True]
    """
    letters = [character for character in text[:_SAMPLED_CHARACTERS] if character.isalpha()]
    if 2 * sum(letter > _LAST_LATIN for letter in letters) > len(letters):
        return True
    return language_of(text) not in ("English", "unknown")


def _first_words(text: str) -> list[str]:
    return [match[0] for match in islice(_WORD.finditer(text.lower()), _WORDS_READ)]


def sampled(texts: Iterable[str]) -> tuple[list[str], Iterable[str]]:
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
    """The share of letters that belong to scripts without spaces, from the texts' beginnings."""
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
    """The analyser and the n-grams for texts with this share of letters; "auto" is replaced."""
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
