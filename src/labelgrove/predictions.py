"""The answer of every method: for each document up to k labels with scores, best first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from labelgrove.arrays import CSR, as_csr
from labelgrove.corpus import LabelIndex
from labelgrove.errors import DataError

ScoreKind = Literal["margin", "product", "probability"]


class ScoredLabel(NamedTuple):
    """One predicted label as people read it."""

    id: str
    name: str
    score: float


@dataclass(frozen=True)
class Predictions:
    """n x k label columns and scores; row i fills its first ``counts[i]`` places.

    Rows are sorted by (-score, column). ``score_kind`` says what a score is: a raw ``margin``, a
    ``product`` of per-level scores in [0, 1], or a calibrated ``probability``. Places past the
    count are padding: column -1, score -inf.

    >>> index = LabelIndex(["a", "b", "c"])
    >>> p = Predictions.from_scores(np.array([[0.25, 0.75, 0.5]]), k=2, index=index)
    >>> p.names(), p.scores.tolist()
    ([['b', 'c']], [[0.75, 0.5]])
    """

    columns: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float32]
    counts: npt.NDArray[np.int32]
    index: LabelIndex
    score_kind: ScoreKind = "product"

    def __post_init__(self) -> None:
        if self.columns.ndim != 2 or self.columns.shape != self.scores.shape:
            raise DataError(
                f"columns {self.columns.shape} and scores {self.scores.shape} must be equal n x k"
            )
        if self.counts.shape != (len(self.columns),):
            raise DataError(f"counts {self.counts.shape} must have one entry per document")

    @classmethod
    def from_scores(
        cls,
        scores: npt.ArrayLike,
        *,
        k: int,
        index: LabelIndex,
        score_kind: ScoreKind = "product",
    ) -> Predictions:
        """The k best of a dense documents x labels score matrix; -inf means "never predict".

        >>> Predictions.from_scores([[1, 1, 0]], k=2, index=LabelIndex("abc")).names()
        [['a', 'b']]
        """
        dense = np.asarray(scores, dtype=np.float32)
        order = np.argsort(-dense, axis=1, kind="stable")[:, : min(k, dense.shape[1])]
        best = np.take_along_axis(dense, order, axis=1)
        return cls._padded(order.astype(np.int32), best, index, score_kind)

    @classmethod
    def from_csr(
        cls,
        matrix: Any,
        *,
        k: int,
        index: LabelIndex,
        score_kind: ScoreKind = "product",
    ) -> Predictions:
        """The k best stored entries of each row of a sparse score matrix (an explicit 0 counts).

        >>> from scipy.sparse import csr_array
        >>> scores = csr_array([[0.0, 0.2], [0.0, 0.0]])
        >>> Predictions.from_csr(scores, k=5, index=LabelIndex("ab")).names()
        [['b'], []]
        """
        csr = as_csr(matrix)
        rows = csr.shape[0]
        row_of = np.repeat(np.arange(rows), np.diff(csr.indptr))
        order = np.lexsort((csr.indices, -csr.data, row_of))
        place = np.arange(len(order)) - np.repeat(csr.indptr[:-1], np.diff(csr.indptr))
        kept = order[place < k]
        width = min(k, int(np.diff(csr.indptr).max(initial=0)))
        columns = np.full((rows, width), -1, np.int32)
        scores = np.full((rows, width), -np.inf, np.float32)
        where = (row_of[kept], place[place < k])
        columns[where] = csr.indices[kept]
        scores[where] = csr.data[kept]
        return cls._padded(columns, scores, index, score_kind)

    @classmethod
    def _padded(
        cls,
        columns: npt.NDArray[np.int32],
        scores: npt.NDArray[np.float32],
        index: LabelIndex,
        score_kind: ScoreKind,
    ) -> Predictions:
        real = np.isfinite(scores) & (columns >= 0)
        return cls(
            np.where(real, columns, np.int32(-1)),
            np.where(real, scores, np.float32(-np.inf)),
            real.sum(axis=1, dtype=np.int32),
            index,
            score_kind,
        )

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def k(self) -> int:
        """The most labels any document can have here.

        >>> Predictions.from_scores([[1, 2]], k=9, index=LabelIndex("ab")).k
        2
        """
        return int(self.columns.shape[1])

    def names(self) -> list[list[str]]:
        """Each document's label names, best first.

        >>> Predictions.from_scores([[1, 2]], k=1, index=LabelIndex("ab")).names()
        [['b']]
        """
        return self._strings(self.index.names)

    def ids(self) -> list[list[str]]:
        """Each document's label ids, best first.

        >>> Predictions.from_scores([[1, 2]], k=1, index=LabelIndex("ab", names="AB")).ids()
        [['b']]
        """
        return self._strings(self.index.ids)

    def _strings(self, values: Any) -> list[list[str]]:
        return [
            [values[c] for c in row[:count]]
            for row, count in zip(self.columns.tolist(), self.counts.tolist(), strict=True)
        ]

    def __getitem__(self, row: int) -> list[ScoredLabel]:
        count = int(self.counts[row])
        return [
            ScoredLabel(self.index.ids[c], self.index.names[c], s)
            for c, s in zip(
                self.columns[row, :count].tolist(), self.scores[row, :count].tolist(), strict=True
            )
        ]

    def __iter__(self) -> Iterator[list[ScoredLabel]]:
        return (self[row] for row in range(len(self)))

    def top(self, k: int) -> Predictions:
        """Only the k best of each document.

        >>> Predictions.from_scores([[1, 2]], k=2, index=LabelIndex("ab")).top(1).names()
        [['b']]
        """
        return Predictions(
            self.columns[:, :k],
            self.scores[:, :k],
            np.minimum(self.counts, np.int32(k)),
            self.index,
            self.score_kind,
        )

    def above(self, threshold: float) -> Predictions:
        """Only labels whose score is at least ``threshold``.

        >>> Predictions.from_scores([[1, 2]], k=2, index=LabelIndex("ab")).above(1.5).names()
        [['b']]
        """
        scores = np.where(self.scores >= threshold, self.scores, np.float32(-np.inf))
        return self._padded(self.columns, scores, self.index, self.score_kind)

    def to_csr(self) -> CSR:
        """Scores as a sparse documents x labels matrix (a score of 0 stays stored).

        >>> Predictions.from_scores([[1, 2]], k=1, index=LabelIndex("ab")).to_csr().toarray()
        array([[0., 2.]], dtype=float32)
        """
        used = np.arange(self.k)[None, :] < self.counts[:, None]
        indptr = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
        matrix = sparse.csr_array(
            (self.scores[used], self.columns[used].astype(np.int64), indptr),
            shape=(len(self), len(self.index)),
        )
        matrix.sort_indices()
        return matrix

    @classmethod
    def concat(cls, parts: list[Predictions]) -> Predictions:
        """Predictions of several batches of documents as one, padded to the widest.

        >>> p = Predictions.from_scores([[1, 2]], k=1, index=LabelIndex("ab"))
        >>> len(Predictions.concat([p, p]))
        2
        """
        if not parts:
            raise DataError("nothing to concatenate")
        width = max(part.k for part in parts)

        def widened(values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
            return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=fill)

        return cls(
            np.concatenate([widened(part.columns, -1) for part in parts]),
            np.concatenate([widened(part.scores, -np.inf) for part in parts]),
            np.concatenate([part.counts for part in parts]),
            parts[0].index,
            parts[0].score_kind,
        )
