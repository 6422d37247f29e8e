"""Literal twins of the text kernels' own rules; what scikit-learn defines is tested against it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def space_tokens(text: str, max_tokens: int | None = None) -> list[str]:
    """PECOS's words: what stands between single space characters; nothing else separates."""
    return [token for token in text.split(" ") if token][:max_tokens]


def ngrams(tokens: Sequence[str], low: int, high: int) -> list[str]:
    return [
        " ".join(tokens[i : i + n])
        for n in range(low, high + 1)
        for i in range(len(tokens) - n + 1)
    ]


def pecos_tfidf(
    documents: Sequence[Sequence[str]],
    *,
    smooth_idf: bool,
    add_one_idf: bool,
    sublinear_tf: bool,
    norm: str,
) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Sorted vocabulary and dense weights of documents given as their terms, in PECOS's formula."""
    vocabulary = sorted({term for terms in documents for term in terms})
    matrix = np.zeros((len(documents), len(vocabulary)))
    for row, terms in enumerate(documents):
        for term, count in Counter(terms).items():
            frequency = sum(term in other for other in documents)
            idf = math.log(len(documents) / (frequency + smooth_idf))
            idf = max(idf, 0.0) + add_one_idf
            tf = 1.0 + math.log(count) if sublinear_tf else count
            matrix[row, vocabulary.index(term)] = tf * idf
        total = matrix[row].sum() if norm == "l1" else math.sqrt((matrix[row] ** 2).sum())
        if total > 0 and norm != "none":
            matrix[row] /= total
    return vocabulary, matrix
