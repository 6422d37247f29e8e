"""Statistics of a corpus, counted in one pass over its documents, and what to do about them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Int64
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.nfc import nfc
from labelgrove.data.corpus import merged_labels
from labelgrove.data.formats.documents import Document
from labelgrove.data.languages import is_foreign, unspaced_share
from labelgrove.data.records import words_of
from labelgrove.data.splits import string_hash

# Labels by number of documents: more than 100, 11 to 100, 1 to 10.
BINS = {"head": (101, np.inf), "torso": (11, 100), "tail": (1, 10)}
_SAMPLED_TEXTS, _SAMPLED_CHARACTERS = 2000, 2000


@dataclass(frozen=True)
class Spread:
    """The mean, median, 99th percentile and maximum of counts; all are zero without counts."""

    mean: float
    median: float
    p99: float
    max: int

    @classmethod
    def of(cls, counts: npt.ArrayLike | array[int]) -> Spread:
        """The spread of an array of counts."""
        values = np.asarray(counts, dtype=np.int64)
        if not len(values):
            return cls(0.0, 0.0, 0.0, 0)
        mean, (median, p99) = values.mean(), np.percentile(values, [50, 99])
        return cls(round(float(mean), 4), float(median), round(float(p99), 4), int(values.max()))


@dataclass(frozen=True)
class Bin:
    """The number of labels in a frequency bin, and of their occurrences."""

    labels: int
    occurrences: int


@dataclass(frozen=True)
class Overlap:
    """How many documents of another part have the text of a document here, or nearly."""

    documents: int
    same: int
    similar: int  # besides those that are the same


@dataclass(frozen=True)
class CorpusStats:
    """Counts of a corpus; ``top`` has the most frequent labels with their numbers of documents.

    Of a sample, ``foreign`` is the share of texts in other languages than English and ``unspaced``
    that of letters in scripts without spaces. ``similar_labels`` differ only by case or spaces.
    """

    documents: int
    labels: int
    labels_per_document: Spread
    documents_per_label: Spread
    words_per_document: Spread
    empty_texts: int
    without_labels: int
    duplicate_texts: int  # documents with the same text as an earlier one
    similar_texts: int  # different texts that are nearly the same as an earlier one
    duplicate_ids: int
    bins: dict[str, Bin]
    top: list[tuple[str, int]]
    foreign: float
    unspaced: float
    similar_labels: list[list[str]]
    respelled_labels: str  # a sentence about those that differ only in the spelling of accents
    other: Overlap | None = None

    def to_dict(self) -> JsonObject:
        """Plain values, ready for JSON."""
        return asdict(self)


def corpus_stats(
    documents: Iterable[Document], *, other: Iterable[Document] | None = None, top: int = 10
) -> CorpusStats:
    """Statistics of a stream of documents; stores two hashes and two counts per document.

    ``other`` is another part of the corpus, whose texts should not be in this one.

    >>> stats = corpus_stats([Document("a red shoe", ["shoes"]), Document("", ["shoes", "hats"])])
    >>> stats.documents, stats.labels, stats.empty_texts, stats.top
    (2, 2, 1, [('shoes', 2), ('hats', 1)])
    """
    words, label_counts = array("q"), array("q")
    frequency: Counter[str] = Counter()
    spellings: set[str] = set()
    sample = _Sample()
    texts: set[int] = set()
    folded: set[int] = set()  # of different texts
    ids: set[int] = set()
    empty = without = similar = repeated_texts = repeated_ids = 0
    for document in documents:
        text = words_of(document.text)
        words.append(len(text.split()))
        spellings.update(document.labels)
        labels = set(map(nfc, document.labels))
        label_counts.append(len(labels))
        frequency.update(labels)
        without += not labels
        if not text.strip():
            empty += 1
        else:
            if _new(texts, text):
                similar += not _new(folded, _folded(text))
            else:
                repeated_texts += 1
            sample.add(text)
        if document.id is not None:
            repeated_ids += not _new(ids, document.id)
    counts = np.fromiter(frequency.values(), np.int64, len(frequency))
    # Equal counts in the order of their labels, so that the order of documents does not matter.
    most = sorted(frequency.items(), key=lambda item: (-item[1], item[0]))[:top]
    return CorpusStats(
        documents=len(words),
        labels=len(frequency),
        labels_per_document=Spread.of(label_counts),
        documents_per_label=Spread.of(counts),
        words_per_document=Spread.of(words),
        empty_texts=empty,
        without_labels=without,
        duplicate_texts=repeated_texts,
        similar_texts=similar,
        duplicate_ids=repeated_ids,
        bins={name: _bin(counts, low, high) for name, (low, high) in BINS.items()},
        top=most,
        foreign=round(sum(map(is_foreign, sample.texts)) / max(1, len(sample.texts)), 4),
        unspaced=round(unspaced_share(sample.texts), 4),
        similar_labels=_similar_labels(frequency),
        respelled_labels=merged_labels(spellings),
        other=None if other is None else _overlap(texts, folded, other),
    )


class _Sample:
    """Every n-th text of a stream, at most 2,000; n doubles when there are more."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._seen, self._step = 0, 1

    def add(self, text: str) -> None:
        if self._seen % self._step == 0:
            self.texts.append(text[:_SAMPLED_CHARACTERS])
            if len(self.texts) > _SAMPLED_TEXTS:
                del self.texts[1::2]
                self._step *= 2
        self._seen += 1


def _similar_labels(labels: Iterable[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault("".join(label.casefold().split()), []).append(label)
    return sorted(sorted(group) for group in groups.values() if len(group) > 1)


def _overlap(texts: set[int], folded: set[int], other: Iterable[Document]) -> Overlap:
    documents = same = similar = 0
    for document in other:
        documents += 1
        text = words_of(document.text)
        if string_hash(text) in texts:
            same += 1
        elif text.strip():
            similar += string_hash(_folded(text)) in folded
    return Overlap(documents, same, similar)


def _bin(counts: Int64, low: int, high: float) -> Bin:
    inside = counts[(counts >= low) & (counts <= high)]
    return Bin(len(inside), int(inside.sum()))


def _new(seen: set[int], string: str) -> bool:
    before = len(seen)
    seen.add(string_hash(string))
    return len(seen) > before


def _folded(text: str) -> str:
    """What nearly equal texts have in common: their letters and digits, whatever the case."""
    return "".join(filter(str.isalnum, nfc(text).casefold())) or text


_SHARE = 0.1  # of texts in other languages, or of letters in scripts without spaces
_SHOWN = 3


def advice(stats: CorpusStats) -> list[str]:
    """Sentences, most important first; none for a corpus without oddities in English."""
    other = stats.other or Overlap(0, 0, 0)
    groups = stats.similar_labels
    examples = "; ".join(" and ".join(map(repr, group)) for group in groups[:_SHOWN])
    findings: list[tuple[object, str]] = [
        (
            other.same + other.similar,
            f"of the {other.documents:,} documents of the other part, {other.same:,} have a text "
            f"of this part and {other.similar:,} more nearly have one: figures that are measured "
            "there are too good; remove these from one of the two parts",
        ),
        (
            0 < stats.empty_texts < stats.documents,  # a corpus of features has no texts at all
            f"{_documents(stats.empty_texts)} no text: leave them out, or name more fields with "
            "--text-field",
        ),
        (
            stats.duplicate_texts,
            f"{_documents(stats.duplicate_texts)} the text of an earlier one: keep one of each, "
            "with the labels of all; `labelgrove data split` puts equal texts into the same part",
        ),
        (
            stats.similar_texts,
            f"{_documents(stats.similar_texts)} nearly the text of another one: parts drawn at "
            "random share such texts, and figures become too good; keep one of each, or see with "
            "--dev how many your parts share",
        ),
        (
            stats.duplicate_ids,
            f"{_documents(stats.duplicate_ids)} the id of an earlier one: nobody can tell their "
            "predictions apart; give each its own",
        ),
        (
            groups,
            f"{sum(map(len, groups)):,} labels differ only by case or spacing, for example "
            f"{examples}: they are learnt as different labels; write each in one way",
        ),
        (stats.respelled_labels, f"{stats.respelled_labels}; you need not do anything"),
        (
            stats.unspaced >= _SHARE,
            f"{stats.unspaced:.0%} of the letters are in scripts without spaces between words: "
            "tf-idf reads these by characters unless you set tfidf.analyzer, and the matcher "
            "cannot read them",
        ),
        (
            stats.foreign >= _SHARE,
            f"{stats.foreign:.0%} of the texts are not in English: neural methods need an encoder "
            "that knows their language; auto looks for one, others need encoder.encoder. If its "
            "words have many endings, see whether linear gains from stems, with --set "
            "tfidf.analyzer=stem",
        ),
    ]
    return [sentence for found, sentence in findings if found]


def _documents(count: int) -> str:
    return f"{count:,} document{' has' if count == 1 else 's have'}"
