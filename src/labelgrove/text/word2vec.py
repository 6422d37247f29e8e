"""Word vectors learnt from the corpus itself (word2vec: skip-gram with negative sampling).

A document is the tf-idf weighted mean of its words' vectors. This baseline for neural methods needs
no torch and no pretrained weights. Batches share their negative words, and each row has its own
learning rate (Adagrad), so all work is matrix products.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Array, Float32, Int32, Int64, offsets
from labelgrove.core.late import expit, sparse
from labelgrove.core.nfc import nfc
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.errors import DataError
from labelgrove.text.tfidf import Tfidf, TfidfParams

_WORD = re.compile(r"\b\w\w+\b")  # a word as tf-idf reads it
_WORDS_AT_ONCE = 1 << 16
_PAIRS_PER_UPDATE = 4096
_SHARED_NEGATIVES = 64
_NEGATIVE_POWER = 0.75  # negatives are drawn by frequency to this power


@dataclass
class Word2vecParams(Params):
    """How word vectors are learnt."""

    width: int = param(100, ge=1, help="numbers in a vector")
    window: int = param(5, ge=1, help="a word learns from at most this many words on each side")
    negatives: float = param(
        5.0, gt=0, help="weight of the random words that a pair is compared with"
    )
    epochs: int = param(5, ge=1, help="passes over the texts, unless max_pairs ends them")
    max_pairs: int = param(
        20_000_000,
        ge=1,
        help="stop after this many pairs of words: about a minute of one core",
    )
    subsample: float = param(
        1e-3, gt=0, help="share of the text above which a word is skipped more and more often"
    )
    lr: float = param(0.2, gt=0, help="first step of each row; later ones are smaller (Adagrad)")
    min_df: int | Literal["auto"] = param(
        "auto", ge=1, help="fewest texts a word must occur in; auto as for tf-idf"
    )
    max_words: int | None = param(
        200_000, ge=1, help="only the most frequent words get a vector; none = all"
    )


class Word2vec:
    """Vectors of words, and of texts as their means.

    >>> texts = ["a red shoe", "a red boot", "green tea", "black tea"] * 25
    >>> model = Word2vec.fit(texts, Word2vecParams(width=8, epochs=20))
    >>> shoe, boot, tea = model.transform(["shoe", "boot", "tea"])
    >>> bool(shoe @ boot > shoe @ tea)
    True
    """

    def __init__(self, vectorizer: Tfidf, vectors: Float32) -> None:
        self.vectorizer = vectorizer
        self.vectors = vectors

    @classmethod
    def fit(
        cls,
        texts: Iterable[str],
        params: Word2vecParams | None = None,
        *,
        seed: int = 0,
    ) -> Word2vec:
        """Learns a vector for every word that is frequent enough; reads ``texts`` twice."""
        params = (params or Word2vecParams()).validate("word2vec")
        words = TfidfParams(analyzer="word", min_df=params.min_df, max_features=params.max_words)
        vectorizer = Tfidf(words).fit(texts)
        numbers = {term: number for number, term in enumerate(vectorizer.terms())}
        ids, starts = _word_numbers(texts, numbers)
        vectors = _learn(ids, starts, len(numbers), params, seed)
        return cls(vectorizer, vectors)

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def transform(self, texts: Iterable[str]) -> Float32:
        """One vector of unit length per text; zeros for a text without known words."""
        rows: Float32 = self.vectorizer.transform(texts) @ self.vectors
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        np.divide(rows, lengths, out=rows, where=lengths > 0)
        return rows

    def state(self) -> Part:
        words = self.vectorizer.state()
        return Part(words.config, words.arrays | {"vectors": self.vectors})

    @classmethod
    def from_state(cls, part: Part) -> Word2vec:
        return cls(Tfidf.from_state(part), part.arrays["vectors"])


def _word_numbers(texts: Iterable[str], numbers: dict[str, int]) -> tuple[Int32, Int64]:
    """The known words of all texts one after another, and where each text begins."""
    rows = [
        np.array(
            [numbers[word] for word in _WORD.findall(nfc(text).lower()) if word in numbers],
            np.int32,
        )
        for text in texts
    ]
    return np.concatenate([np.zeros(0, np.int32), *rows]), offsets([len(row) for row in rows])


def _learn(
    ids: Int32,
    starts: npt.NDArray[np.int64],
    words: int,
    params: Word2vecParams,
    seed: int,
) -> Float32:
    if len(ids) == 0:
        raise DataError("word2vec: the texts have no words that are frequent enough")
    random = np.random.default_rng(seed)
    counts = np.bincount(ids, minlength=words).astype(np.float64)
    share = np.maximum(counts / len(ids), 1e-12)
    keep = np.minimum(1.0, np.sqrt(params.subsample / share) + params.subsample / share)
    drawn = np.cumsum(counts**_NEGATIVE_POWER)
    centres = _VectorRows(
        random.uniform(-0.5, 0.5, (words, params.width)) / params.width, params.lr
    )
    contexts = _VectorRows(np.zeros((words, params.width)), params.lr)
    document = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    blocks = -(-len(ids) // _WORDS_AT_ONCE)
    pairs = 0
    for _ in range(params.epochs):
        for block in random.permutation(blocks):
            here = slice(block * _WORDS_AT_ONCE, (block + 1) * _WORDS_AT_ONCE)
            sample = random.random(len(ids[here])) < keep[ids[here]]
            near = _pairs(ids[here][sample], document[here][sample], params.window, random)
            for centre, context in near:
                negatives = np.searchsorted(
                    drawn, random.random(_SHARED_NEGATIVES) * drawn[-1], side="right"
                )
                _update(centres, contexts, centre, context, negatives, params.negatives)
                pairs += len(centre)
            if pairs >= params.max_pairs:
                return centres.values
    return centres.values


def _pairs(
    words: Int32, text: Int64, window: int, random: np.random.Generator
) -> Iterator[tuple[Int32, Int32]]:
    """Shuffled batches of (word, word near it); the reach differs from word to word."""
    reach = random.integers(1, window + 1, len(words))
    left, right = [], []
    for distance in range(1, min(window, len(words) - 1) + 1):
        here = np.arange(len(words) - distance)
        same = text[here] == text[here + distance]
        forward = here[same & (reach[here] >= distance)]
        backward = here[same & (reach[here + distance] >= distance)] + distance
        left += [words[forward], words[backward]]
        right += [words[forward + distance], words[backward - distance]]
    if not left:
        return
    centres, contexts = np.concatenate(left), np.concatenate(right)
    order = random.permutation(len(centres))
    for first in range(0, len(order), _PAIRS_PER_UPDATE):
        batch = order[first : first + _PAIRS_PER_UPDATE]
        yield centres[batch], contexts[batch]


class _VectorRows:
    """A table whose rows are updated by Adagrad, with one learning rate per row."""

    def __init__(self, values: Array, lr: float) -> None:
        self.values: Float32 = np.asarray(values, np.float32)
        self._squares: Float32 = np.zeros(len(self.values), np.float32)
        self._lr = np.float32(lr)

    def descend(self, rows: Int32, gradients: Float32) -> None:
        """One step for all given rows; the gradients of a repeated row are added."""
        unique, places = np.unique(rows, return_inverse=True)
        ones = np.ones(len(rows), np.float32)
        add = sparse.csr_array((ones, (places, np.arange(len(rows)))), (len(unique), len(rows)))
        total = add @ gradients
        self._squares[unique] += np.square(total).mean(axis=1)
        rate = self._lr / np.sqrt(self._squares[unique] + np.float32(1e-10))
        self.values[unique] -= rate[:, None] * total


def _update(
    centres: _VectorRows,
    contexts: _VectorRows,
    centre: Int32,
    context: Int32,
    negatives: Array,
    weight: float,
) -> None:
    """One step on log sigmoid(u v) of the pairs and log sigmoid(-u n) of the shared negatives."""
    u, v, n = centres.values[centre], contexts.values[context], contexts.values[negatives]
    near = expit(np.einsum("ij,ij->i", u, v)) - np.float32(1)
    far = expit(u @ n.T) * np.float32(weight / len(negatives))
    far[context[:, None] == negatives[None, :]] = 0  # not a random word, but the pair's own
    centres.descend(centre, near[:, None] * v + far @ n)
    contexts.descend(
        np.concatenate([context, negatives.astype(np.int32)]),
        np.concatenate([near[:, None] * u, far.T @ u]),
    )
