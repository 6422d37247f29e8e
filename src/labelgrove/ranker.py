"""The linear ranker: one classifier per tree node, trained level by level, searched by beam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from labelgrove.arrays import CSR, CsrParts, Float32, Int32, as_csr, csr_parts
from labelgrove.beam import BeamSearch, LabelMask, SearchParams, label_columns
from labelgrove.errors import DataError
from labelgrove.part import Part
from labelgrove.solver import ChunkedWeights, RankerParams, RowLists, solve_level
from labelgrove.tree import LabelTree

Progress = Callable[[int, int], None]


class Ranker:
    """A label tree with the weights of its nodes; :meth:`search` finds documents' best labels.

    >>> X, Y = np.eye(3), np.eye(3)
    >>> ranker = train_ranker(X, Y, LabelTree([[0, 0, 0]], [0, 1, 2]))
    >>> ranker.search(X, k=1)[0].ravel().tolist()
    [0, 1, 2]
    """

    def __init__(
        self, tree: LabelTree, levels: list[ChunkedWeights], *, features: int, bias: float
    ) -> None:
        self.tree = tree
        self.levels = levels
        self.features = features
        self.bias = bias
        self._search = BeamSearch(tree, levels, features=features, bias=bias)

    def search(
        self,
        documents: Any,
        *,
        k: int = 10,
        params: SearchParams | None = None,
        allow: Any = None,
        deny: Any = None,
        threads: int | None = None,
    ) -> tuple[Int32, Float32, Int32]:
        """The k best labels of each document: columns, scores (n x k) and counts.

        Rows are sorted by (-score, column). ``allow`` and ``deny`` are label columns, or ``allow``
        is a :class:`~labelgrove.beam.LabelMask`; the tree is pruned to the labels that remain
        before it is searched. A row is full unless fewer than k labels may be found: the beam
        widens where it has to. Places past a row's count hold -1 and -inf.

        >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
        >>> columns, scores, counts = ranker.search([[0.0, 1.0]], k=5)
        >>> columns.tolist(), counts.tolist()
        ([[1, 0]], [2])
        >>> ranker.search([[0.0, 1.0]], k=5, deny=[1])[0].tolist()
        [[0]]
        """
        params = (params or SearchParams()).validate("search")
        mask = allow if isinstance(allow, LabelMask) and deny is None else None
        if mask is None and (allow is not None or deny is not None):
            mask = LabelMask(self.tree, allow=allow, deny=deny)
        return self._search(_parts(documents), k=k, params=params, mask=mask, threads=threads)

    def score(
        self,
        documents: Any,
        columns: Any,
        *,
        params: SearchParams | None = None,
        threads: int | None = None,
    ) -> Any:
        """Scores of given labels, the numbers that :meth:`search` finds for them.

        ``columns`` is a list of m label columns, for an n x m array; or an n x labels sparse
        pattern, for a sparse matrix with a score at every stored place (a score may be 0).

        >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
        >>> ranker.score([[0.0, 1.0]], [1, 0]).round(1).tolist()
        [[1.0, 0.0]]
        """
        params = (params or SearchParams()).validate("search")
        parts = _parts(documents)
        rows = len(parts.indptr) - 1
        if sparse.issparse(columns):
            pattern = as_csr(columns, name="columns")
            if pattern.shape != (rows, self.tree.labels):
                raise DataError(
                    f"columns has shape {pattern.shape}, not {rows} documents x "
                    f"{self.tree.labels} labels"
                )
            wanted = csr_parts(pattern, name="columns", finite=False)
            scores = self._search.score(
                parts, indptr=wanted.indptr, columns=wanted.indices, params=params, threads=threads
            )
            return sparse.csr_array((scores, pattern.indices, pattern.indptr), shape=pattern.shape)
        same = label_columns(columns, self.tree.labels, name="columns")
        scores = self._search.score(
            parts,
            indptr=np.arange(rows + 1, dtype=np.int64) * len(same),
            columns=np.tile(same, rows),
            params=params,
            threads=threads,
        )
        return scores.reshape(rows, len(same))

    def state(self) -> Part:
        """Tree and weights as settings and arrays.

        >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
        >>> ranker.state().config["levels"]
        1
        """
        arrays: dict[str, npt.NDArray[Any]] = {
            f"tree.{name}": array for name, array in self.tree.state().arrays.items()
        }
        for number, level in enumerate(self.levels):
            arrays |= {f"level.{number}.{name}": array for name, array in level.arrays().items()}
        config = {"levels": len(self.levels), "features": self.features, "bias": self.bias}
        return Part(config, arrays)

    @classmethod
    def from_state(cls, part: Part) -> Ranker:
        """The ranker that :meth:`state` described; its weights stay where they are (memory maps).

        >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
        >>> Ranker.from_state(ranker.state()).search([[0.0, 1.0]], k=1)[0].tolist()
        [[1]]
        """

        def below(prefix: str) -> dict[str, npt.NDArray[Any]]:
            return {
                name.removeprefix(prefix): array
                for name, array in part.arrays.items()
                if name.startswith(prefix)
            }

        count = int(part.config["levels"])
        return cls(
            LabelTree.from_state(Part({"levels": count}, below("tree."))),
            [ChunkedWeights(**below(f"level.{number}.")) for number in range(count)],
            features=int(part.config["features"]),
            bias=float(part.config["bias"]),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # For copies and worker processes; the native model is made anew on the other side.
        return type(self).from_state, (self.state(),)

    def __repr__(self) -> str:
        weights = sum(len(level.values) for level in self.levels)
        return f"Ranker({self.tree!r}, {self.features:,} features, {weights:,} weights)"


def train_ranker(
    features: Any,
    labels: Any,
    tree: LabelTree,
    params: RankerParams | None = None,
    *,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Ranker:
    """Trains a classifier for every node of ``tree`` on the documents' features and labels.

    A node learns from the documents that bear its parent (teacher forcing); the first level learns
    from all. ``progress(done, total)`` is told the number of nodes whose children are trained.

    >>> train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    Ranker(LabelTree(2), 2 features, 4 weights)
    """
    params = (params or RankerParams()).validate("ranker")
    x, y = as_csr(features, name="features"), as_csr(labels, name="labels")
    if x.shape[0] != y.shape[0]:
        raise DataError(f"features have {x.shape[0]} rows but labels have {y.shape[0]}")
    if x.shape[0] == 0:
        raise DataError("cannot train on no documents")
    if y.shape[1] != tree.labels:
        raise DataError(f"labels have {y.shape[1]} columns but the tree has {tree.labels} labels")
    bearers = node_bearers(y, tree)
    parents = [1, *tree.widths[:-1]]
    levels: list[ChunkedWeights] = []
    for number, parent_count in enumerate(parents):
        done = sum(parents[:number])

        def report(count: int, done: int = done) -> None:
            if progress is not None:
                progress(done + count, sum(parents))

        levels.append(
            solve_level(
                x,
                instances=_everyone(x) if number == 0 else bearers[number - 1],
                positives=bearers[number],
                children=tree.children(number),
                params=params,
                seed=seed + number,
                threads=threads,
                on_block=report,
            )
        )
        assert len(levels[-1].chunk_rows) == parent_count + 1
    return Ranker(tree, levels, features=int(x.shape[1]), bias=params.bias)


def node_bearers(labels: CSR, tree: LabelTree) -> list[RowLists]:
    """For each level and node, the documents that bear any label below it.

    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1])
    >>> [lists.rows.tolist() for lists in node_bearers(as_csr([[1, 0, 1], [0, 1, 0]]), tree)]
    [[0, 1], [0, 0, 1]]
    """
    ones = np.ones(labels.nnz, np.float32)
    nodes = sparse.csr_array(
        (ones, tree.leaf_positions[labels.indices], labels.indptr), shape=labels.shape
    )
    levels = [RowLists.from_csr(nodes)]
    for parents in tree.parents[:0:-1]:
        nodes = sparse.csr_array(
            (nodes.data, parents[nodes.indices], nodes.indptr.copy()),
            shape=(labels.shape[0], int(parents[-1]) + 1),
        )
        nodes.sum_duplicates()
        nodes.data = np.ones(nodes.nnz, np.float32)
        levels.append(RowLists.from_csr(nodes))
    return levels[::-1]


def _parts(documents: Any) -> CsrParts:
    """Documents as the kernels read them; parts come from our own kernels and are sound."""
    if isinstance(documents, CsrParts):
        return documents
    return csr_parts(as_csr(documents, name="documents"), name="documents")


def _everyone(features: CSR) -> RowLists:
    rows = int(features.shape[0])
    return RowLists(
        np.array([0, rows], np.int64), np.arange(rows, dtype=np.int32), np.ones(rows, np.float32)
    )
