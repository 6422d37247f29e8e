"""The result of every method: for each document up to k labels with scores, best first."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Array, Bools, Float32, Int32, MatrixLike, as_csr, entry_rows
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.late import sparse
from labelgrove.core.strings import cut
from labelgrove.core.topk import lists_to_csr, top_k
from labelgrove.data.corpus import LabelIndex, Strings
from labelgrove.errors import ConfigError, DataError, MissingPackageError

Pairs: TypeAlias = Sequence[tuple[int, int]] | MatrixLike
ScoreKind = Literal["margin", "product", "probability"]
SHOWN_DOCUMENTS, SHOWN_LABELS = 5, 5  # when predictions are displayed
COMPARED = 5  # labels that tell whether two documents get the same


class ScoredLabel(NamedTuple):
    """One predicted label, for people to read."""

    id: str
    name: str
    score: float


@dataclass(frozen=True)
class Predictions:
    """n x k label columns and scores; row i has ``counts[i]`` labels.

    Rows are sorted by (-score, column). ``score_kind`` says what a score is: a raw ``margin``, a
    ``product`` of per-level scores in [0, 1], or a calibrated ``probability``. The rest of a row is
    padding: column -1, score -inf.

    >>> index = LabelIndex(["a", "b", "c"])
    >>> predictions = Predictions.from_scores([[0.25, 0.75, 0.5]], k=2, index=index)
    >>> predictions.names(), predictions.scores.tolist()
    ([['b', 'c']], [[0.75, 0.5]])
    """

    columns: Int32
    scores: Float32
    counts: Int32
    index: LabelIndex
    score_kind: ScoreKind = "product"

    def __post_init__(self) -> None:
        if self.columns.ndim != 2 or self.columns.shape != self.scores.shape:
            raise DataError(
                f"columns {self.columns.shape} and scores {self.scores.shape} must be equal n x k"
            )
        if self.counts.shape != (len(self.columns),):
            raise DataError(f"counts {self.counts.shape} must have one entry per document")
        if len(self.counts) and not 0 <= self.counts.min() <= self.counts.max() <= self.k:
            raise DataError(f"counts must lie between 0 and k = {self.k}")
        if self.columns.size and self.columns.max() >= len(self.index):
            raise DataError(f"a column lies outside the {len(self.index):,} labels of the index")

    @classmethod
    def from_scores(
        cls, scores: npt.ArrayLike, *, k: int, index: LabelIndex, score_kind: ScoreKind = "product"
    ) -> Predictions:
        """The k best of a dense documents x labels score matrix; -inf means "never predict"."""
        return cls._best(np.asarray(scores, dtype=np.float32), k, index, score_kind)

    @classmethod
    def from_csr(
        cls, matrix: MatrixLike, *, k: int, index: LabelIndex, score_kind: ScoreKind = "product"
    ) -> Predictions:
        """The k best stored entries of each row of a sparse score matrix (an explicit 0 counts)."""
        return cls._best(as_csr(matrix, name="score matrix"), k, index, score_kind)

    @classmethod
    def _best(
        cls, matrix: Array | CSR, k: int, index: LabelIndex, score_kind: ScoreKind
    ) -> Predictions:
        best = top_k(matrix, k)
        if matrix.shape[1] != len(index):
            raise DataError(
                f"score matrix: {matrix.shape[1]} columns but the index has {len(index)} labels"
            )
        return cls(*best, index, score_kind)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def k(self) -> int:
        """The most labels that any document can have here."""
        return int(self.columns.shape[1])

    @property
    def used(self) -> Bools:
        """Which entries are labels and not padding (n x k)."""
        return np.arange(self.k) < self.counts[:, None]

    def names(self) -> list[list[str]]:
        """Each document's label names, best first."""
        return self._strings(self.index.names)

    def ids(self) -> list[list[str]]:
        """Each document's label ids, best first."""
        return self._strings(self.index.ids)

    def _strings(self, values: Strings) -> list[list[str]]:
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

    def same_as(self, other: Predictions) -> Bools:
        """Which documents have the best labels and scores of the first document of ``other``.

        A text whose words tell a model nothing gets the labels of an empty text, the likeliest
        ones: ``predictions.same_as(model.predict([""]))`` finds these texts.
        """
        k = min(self.k, other.k, COMPARED)
        same = self.columns[:, :k] == other.columns[:1, :k]
        same &= self.scores[:, :k] == other.scores[:1, :k]
        return np.asarray(same.all(axis=1))

    def top(self, k: int) -> Predictions:
        """Only the k best of each document."""
        if k < 1:
            raise ConfigError(f"k must be at least 1, got {k}")
        return replace(
            self,
            columns=self.columns[:, :k],
            scores=self.scores[:, :k],
            counts=np.minimum(self.counts, np.int32(k)),
        )

    def first(self, counts: Array) -> Predictions:
        """Only the best labels of each document, as many as ``counts`` says for it."""
        return self._only(self.used & (np.arange(self.k) < counts[:, None]))

    def of_rows(self, rows: Array) -> Predictions:
        """Only some documents: their numbers, or a mask."""
        return replace(
            self, columns=self.columns[rows], scores=self.scores[rows], counts=self.counts[rows]
        )

    def with_scores(self, scores: Array) -> Predictions:
        """The same labels with other scores (n x k), in the order of these."""
        values: Float32 = np.where(self.used, scores, -np.inf).astype(np.float32)
        order = np.lexsort((self.columns, -values), axis=1)
        return replace(
            self,
            columns=np.take_along_axis(self.columns, order, 1),
            scores=np.take_along_axis(values, order, 1),
        )

    def above(self, threshold: float | Array) -> Predictions:
        """Only labels whose score is at least ``threshold``: a number, or one number per label.

        >>> predictions = Predictions.from_scores([[1, 2]], k=2, index=LabelIndex("ab"))
        >>> predictions.above(1.5).names(), predictions.above(np.array([1, 3])).names()
        ([['b']], [['a']])
        """
        if isinstance(threshold, np.ndarray):
            if threshold.shape != (len(self.index),):
                raise DataError(f"{threshold.shape} thresholds for {len(self.index)} labels")
            return self._only(self.used & (self.scores >= threshold[self.columns]))
        return self._only(self.used & (self.scores >= threshold))

    def without(self, pairs: Pairs) -> Predictions:
        """Without the given (document, column) pairs; labels after a removed one move up.

        ``pairs`` is a sequence of pairs, an m x 2 array, or a sparse documents x labels matrix.

        >>> predictions = Predictions.from_scores([[1, 2], [1, 2]], k=2, index=LabelIndex("ab"))
        >>> predictions.without([(1, 1)]).names()
        [['b', 'a'], ['a']]
        """
        if sparse.issparse(pairs):
            matrix = as_csr(pairs, name="pairs")
            rows, columns = entry_rows(matrix), matrix.indices.astype(np.int64)
        else:
            given = np.asarray(pairs)
            if given.size == 0:
                return self
            if given.ndim != 2 or given.shape[1] != 2 or given.dtype.kind not in "iu":
                raise DataError("pairs to remove must be (document, column) pairs of integers")
            rows, columns = given.astype(np.int64).T
        labels = len(self.index)
        wrong = (rows < 0) | (rows >= len(self)) | (columns < 0) | (columns >= labels)
        if wrong.any():
            first = int(np.argmax(wrong))
            raise DataError(
                f"pair {first} to remove is (document {rows[first]}, column {columns[first]}), "
                f"outside {len(self)} documents x {labels} labels"
            )
        predicted = np.arange(len(self), dtype=np.int64)[:, None] * labels + self.columns
        return self._only(self.used & ~np.isin(predicted, rows * labels + columns))

    def _only(self, chosen: Bools) -> Predictions:
        """The ``chosen`` entries, moved to the front of their rows in the same order."""
        order = np.argsort(~chosen, axis=1, kind="stable")
        front = np.take_along_axis(chosen, order, axis=1)
        return replace(
            self,
            columns=np.where(front, np.take_along_axis(self.columns, order, 1), np.int32(-1)),
            scores=np.where(front, np.take_along_axis(self.scores, order, 1), np.float32(-np.inf)),
            counts=chosen.sum(axis=1, dtype=np.int32),
        )

    def to_csr(self) -> CSR:
        """Scores as a sparse documents x labels matrix (a score of 0 stays stored)."""
        return lists_to_csr(self.columns, self.scores, self.counts, len(self.index))

    def to_dicts(self) -> list[list[JsonObject]]:
        """Each document's labels as plain dictionaries, best first, as for JSON.

        >>> Predictions.from_scores([[1, 2]], k=1, index=LabelIndex("ab")).to_dicts()
        [[{'id': 'b', 'name': 'b', 'score': 2.0}]]
        """
        return [[label._asdict() for label in labels] for labels in self]

    def to_frame(
        self, library: str = "pandas", *, documents: Sequence[object] | None = None
    ) -> Any:
        """A data frame of pandas (or "polars") with a row for each predicted label, best first.

        Its columns are document, rank (from 1), id, name and score. ``documents`` are the
        documents' own ids, such as ``df["id"]``; without them, documents are numbered from 0.
        """
        if library not in ("pandas", "polars"):
            raise ConfigError(f"library: must be pandas or polars, got {library!r}")
        try:
            frames = importlib.import_module(library)
        except ImportError as error:
            raise MissingPackageError(library, "to_frame") from error
        if documents is not None and len(documents) != len(self):
            raise DataError(f"{len(documents)} ids for {len(self)} documents")
        rows, ranks = np.nonzero(self.used)
        columns = self.columns[rows, ranks].tolist()
        labels = {c: (self.index.ids[c], self.index.names[c]) for c in set(columns)}
        given = None if documents is None else list(documents)
        return frames.DataFrame(
            {
                "document": rows if given is None else [given[row] for row in rows.tolist()],
                "rank": ranks + 1,
                "id": [labels[c][0] for c in columns],
                "name": [labels[c][1] for c in columns],
                "score": self.scores[rows, ranks],
            }
        )

    def __repr__(self) -> str:
        """The first documents, with their best labels and scores as people read them."""
        documents = f"{len(self):,} document{'s' * (len(self) != 1)}"
        lines = [f"Predictions({documents}, {self.k} best labels, scores: {self.score_kind})"]
        for row in range(min(len(self), SHOWN_DOCUMENTS)):
            labels = [f"{cut(label.name, 40)} {label.score:.3f}" for label in self[row]]
            lines.append(f"{row}: {', '.join(labels[:SHOWN_LABELS]) or 'no label'}")
        more = len(self) - SHOWN_DOCUMENTS
        return "\n  ".join([*lines, f"and {more:,} more"] if more > 0 else lines)

    @classmethod
    def concat(cls, parts: list[Predictions]) -> Predictions:
        """Predictions of several batches of documents as one, padded to the widest."""
        if not parts:
            raise DataError("nothing to concatenate")
        if any(part.score_kind != parts[0].score_kind for part in parts):
            raise DataError("cannot concatenate predictions whose scores are of different kinds")
        if any(part.index != parts[0].index for part in parts):
            raise DataError("cannot concatenate predictions over different label indexes")
        width = max(part.k for part in parts)

        def widened(values: Array, fill: float) -> Array:
            return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=fill)

        return cls(
            np.concatenate([widened(part.columns, -1) for part in parts]),
            np.concatenate([widened(part.scores, -np.inf) for part in parts]),
            np.concatenate([part.counts for part in parts]),
            parts[0].index,
            parts[0].score_kind,
        )


def check_fitted(model: Any) -> None:
    """Raises NotFittedError unless ``fit`` or ``load`` has been called."""
    if not model.fitted:
        from labelgrove.errors import NotFittedError  # imports scikit-learn

        name = type(model).__name__
        raise NotFittedError(f"this {name} is not fitted yet; call fit or {name}.load first")
