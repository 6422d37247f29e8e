"""What to do about what the statistics of a corpus show, a sentence for each."""

from __future__ import annotations

from labelgrove.data.languages import UNSPACED_SCRIPTS
from labelgrove.data.near_duplicates import COMPARED
from labelgrove.data.stats import CorpusStats

_SHARE = 0.1  # of texts or letters: a language or script that counts
_SHOWN = 3
_INFLECTED = ("German", "Finnish", "Hungarian", "Turkish", "Russian", "Polish", "Czech")


def advice(stats: CorpusStats) -> list[str]:
    """Sentences, most important first; none for a corpus without oddities in English.

    >>> from labelgrove.data.stats import corpus_stats
    >>> from labelgrove.data.formats import Document
    >>> rows = [Document("a list of the words", ["Tea"]), Document("the words of a song", ["tea"])]
    >>> print(*advice(corpus_stats(rows)))
    2 labels differ only by case or spacing, for example 'Tea' and 'tea': they are learnt as \
different labels; write each in one way
    """
    return [*_about_texts(stats), *_about_labels(stats), *_about_languages(stats)]


def _about_texts(stats: CorpusStats) -> list[str]:
    sentences = []
    if (other := stats.other) is not None and other.same + other.similar:
        sentences.append(
            f"of the {other.documents:,} documents of the other part, {other.same:,} have a text "
            f"of this part and {other.similar:,} more nearly have one: figures that are measured "
            "there are too good; remove these from one of the two parts"
        )
    if 0 < stats.empty_texts < stats.documents:  # a corpus of features has no texts at all
        sentences.append(
            f"{_documents(stats.empty_texts)} no text: leave them out, or name more fields with "
            "--text-field"
        )
    if stats.duplicate_texts:
        sentences.append(
            f"{_documents(stats.duplicate_texts)} the text of an earlier one: keep one of each, "
            "with the labels of all; `labelgrove data split` puts equal texts into the same part"
        )
    if stats.similar_texts:
        among = f" (of {COMPARED:,} compared)" if stats.documents > COMPARED else ""
        sentences.append(
            f"{_documents(stats.similar_texts)} nearly the text of another one{among}: parts drawn "
            "at random share such texts, and figures become too good; keep one of each, or see "
            "with --dev how many your parts share"
        )
    if stats.duplicate_ids:
        sentences.append(
            f"{_documents(stats.duplicate_ids)} the id of an earlier one: nobody can tell their "
            "predictions apart; give each its own"
        )
    return sentences


def _about_labels(stats: CorpusStats) -> list[str]:
    sentences = []
    if groups := stats.similar_labels:
        examples = "; ".join(" and ".join(map(repr, group)) for group in groups[:_SHOWN])
        sentences.append(
            f"{sum(map(len, groups)):,} labels differ only by case or spacing, for example "
            f"{examples}: they are learnt as different labels; write each in one way"
        )
    if stats.respelled_labels:
        sentences.append(f"{stats.respelled_labels}; you need not do anything")
    return sentences


def _about_languages(stats: CorpusStats) -> list[str]:
    sentences = []
    unspaced = sum(stats.scripts.get(script, 0.0) for script in UNSPACED_SCRIPTS)
    if unspaced >= _SHARE:
        sentences.append(
            f"{unspaced:.0%} of the letters are in scripts without spaces between words: tf-idf "
            "reads these by characters unless you set tfidf.analyzer, and the matcher cannot read "
            "them"
        )
    names = [
        f"{name} {share:.0%}"
        for name, share in stats.languages.items()
        if share >= _SHARE and name != "unknown"
    ]
    if names and any(not name.startswith("English ") for name in names):
        sentences.append(
            f"the texts are not only in English ({', '.join(names)}): neural methods need an "
            "encoder that knows these languages; auto looks for one, others need encoder.encoder"
        )
    inflected = [name for name in _INFLECTED if stats.languages.get(name, 0.0) >= _SHARE]
    if inflected:
        sentences.append(
            f"words of {' and '.join(inflected)} have many endings: see on held-out documents "
            "whether linear gains from stems, with --set tfidf.analyzer=stem"
        )
    return sentences


def _documents(count: int) -> str:
    return f"{count:,} document{' has' if count == 1 else 's have'}"
