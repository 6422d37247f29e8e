"""The linear ranker: one classifier per tree node, trained level by level, searched by beam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from labelgrove.core.arrays import CSR, CsrParts, Float32, Int32, as_csr, csr_parts, matrix_parts
from labelgrove.data.features import FeatureParts, Features, as_features
from labelgrove.disk.part import Part
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import (
    BeamSearch,
    SearchParams,
    TreeMask,
    features_text,
    label_columns,
    sparse_only,
)
from labelgrove.ranking.negatives import (
    given_nodes,
    instance_lists,
    predicted_nodes,
    shortlisted,
    weighted,
)
from labelgrove.ranking.relevance import costs
from labelgrove.ranking.solver import ChunkedWeights, RankerParams, RowLists, Start, solve_level
from labelgrove.ranking.weights import Storage, compress

Progress = Callable[[int, int], None]


class Ranker:
    """A label tree with the weights of its nodes; :meth:`search` finds documents' best labels.

    >>> X, Y = np.eye(3), np.eye(3)
    >>> ranker = train_ranker(X, Y, LabelTree([[0, 0, 0]], [0, 1, 2]))
    >>> ranker.search(X, k=1)[0].ravel().tolist()
    [0, 1, 2]
    """

    def __init__(
        self,
        tree: LabelTree,
        levels: list[ChunkedWeights],
        *,
        features: int,
        bias: float,
        width: int = 0,
    ) -> None:
        self.tree = tree
        self.levels = levels
        self.features = features
        self.width = width
        self.bias = bias
        self._last_settings: dict[str, Any] = {}
        self._search = BeamSearch(tree, levels, features=features, bias=bias, width=width)

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

        ``documents`` are Features, a sparse matrix or an array; a model that knows only sparse or
        only dense features reads a matrix or an array as those.
        Rows are sorted by (-score, column). ``allow`` and ``deny`` are label columns, or ``allow``
        is a ``LabelMask``; the tree is pruned to the labels that remain
        before it is searched. A row is full unless fewer than k labels may be found: the beam
        widens where it has to. Places past a row's count hold -1 and -inf.

        >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
        >>> columns, scores, counts = ranker.search([[0.0, 1.0]], k=5)
        >>> columns.tolist(), counts.tolist()
        ([[1, 0]], [2])
        >>> ranker.search([[0.0, 1.0]], k=5, deny=[1])[0].tolist()
        [[0]]
        """
        params = self._valid(params)
        if isinstance(allow, LabelMask):
            allow = allow.over(self.tree) if deny is None else allow.columns
        mask = allow if isinstance(allow, TreeMask) and deny is None else None
        if mask is None and (allow is not None or deny is not None):
            mask = TreeMask(self.tree, allow=allow, deny=deny)
        return self._search(self.parts(documents), k=k, params=params, mask=mask, threads=threads)

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
        params = self._valid(params)
        parts = self.parts(documents)
        rows = parts.rows
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

    def _valid(self, params: SearchParams | None) -> SearchParams:
        """Validated settings; those of the last call, if equal, are known to be valid."""
        params = SearchParams() if params is None else params
        settings = vars(params)
        if settings != self._last_settings or isinstance(params.beam, list):
            params.validate("search")
            self._last_settings = dict(settings)
        return params

    def parts(self, documents: Any) -> FeatureParts:
        """Documents as the kernels read them; parts come from our own kernels and are sound.

        >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
        >>> ranker.parts([[0.0, 1.0]]).rows
        1
        """
        if isinstance(documents, FeatureParts):
            return documents
        if isinstance(documents, CsrParts):
            return sparse_only(documents)
        if not isinstance(documents, Features):
            # One block, and the model says which.
            if self.width == 0:
                return sparse_only(matrix_parts(documents, name="documents"))
            if self.features == 0 and sparse.issparse(documents):
                documents = as_csr(documents, name="documents").toarray()
        return as_features(documents, name="documents").parts(name="documents")

    def compressed(self, storage: Storage) -> Ranker:
        """The same ranker with the weights of sparse features stored in fewer bytes.

        ``float16`` has 11 bits of precision; ``int8`` has 8, with a scale for each node. Children
        of small clusters become single bytes in any case.

        >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
        >>> ranker.compressed("float16").levels[0].values.dtype
        dtype('float16')
        """
        levels = [
            compress(level, self.tree.children(number), storage)
            for number, level in enumerate(self.levels)
        ]
        return Ranker(self.tree, levels, features=self.features, bias=self.bias, width=self.width)

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
        config: dict[str, Any] = {"levels": len(self.levels), "features": self.features}
        config |= {"width": self.width, "bias": self.bias}
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
            width=int(part.config.get("width", 0)),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # For copies and worker processes; the native model is made anew on the other side.
        return type(self).from_state, (self.state(),)

    def __repr__(self) -> str:
        weights = sum(len(level.values) + len(level.dense) for level in self.levels)
        known = features_text(self.features, self.width)
        return f"Ranker({self.tree!r}, {known}, {weights:,} weights)"


def train_ranker(
    features: Any,
    labels: Any,
    tree: LabelTree,
    params: RankerParams | None = None,
    *,
    sample_weight: npt.ArrayLike | None = None,
    negatives: Any = None,
    shortlist: Any = None,
    start: Start | Sequence[Start | None] | None = None,
    labels_only: bool = False,
    search: SearchParams | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Ranker:
    """Trains a classifier for every node of ``tree`` on the documents' features and labels.

    ``features`` are a sparse matrix, an array, or ``Features`` with both.
    The first level learns from all documents, others as ``params.negatives`` says; ``search`` is
    how predicted negatives are found. ``negatives`` may bring further ones, see
    ``negatives.given_nodes``. With a ``shortlist`` the labels learn from its
    documents and their positives alone, see ``negatives.shortlisted``.
    ``start`` has weights that the labels start from, one row per label column, or one entry (or
    None) per tree level, rows being nodes above the last; ``params.start`` says what they are for.
    With ``labels_only``, nodes above the labels get no weights: for shortlists that others make.
    ``sample_weight`` has a factor for each document's costs; 0 leaves it out.
    ``progress(done, total)`` is told the number of nodes whose children are trained.

    >>> train_ranker(sparse.eye_array(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    Ranker(LabelTree(2), 2 features, 4 weights)
    """
    params = (params or RankerParams()).validate("ranker")
    search = (search or SearchParams()).validate("search")
    x, y = as_features(features), as_csr(labels, name="labels")
    if len(x) != y.shape[0]:
        raise DataError(f"features have {len(x)} rows but labels have {y.shape[0]}")
    if len(x) == 0:
        raise DataError("cannot train on no documents")
    if y.shape[1] != tree.labels:
        raise DataError(f"labels have {y.shape[1]} columns but the tree has {tree.labels} labels")
    if params.negatives == "given" and negatives is None:
        raise ConfigError("ranker.negatives: is 'given', but no negatives were given")
    if labels_only and shortlist is None:
        raise ConfigError("labels_only: needs a shortlist, for no level above proposes any label")
    given = given_nodes(negatives, tree, len(x))
    listed = None if shortlist is None else shortlisted(shortlist, tree, len(x))
    starts = _starts(start, tree)
    weights = None if sample_weight is None else _document_weights(sample_weight, len(x))
    if weights is not None and (weights == 0).any():
        kept = np.flatnonzero(weights)
        x, y, weights = x.take(kept), y[kept], weights[kept]
        given = [None if matrix is None else matrix[kept] for matrix in given]
        if listed is not None:
            listed = listed[0][kept], None if listed[1] is None else listed[1][kept]
    positives = costs(
        y,
        tree,
        mode=params.relevance,
        norm=params.relevance_norm,
        label_weights=params.label_weights == "cost",
    )
    parents = [1, *tree.widths[:-1]]
    levels: list[ChunkedWeights] = []
    for number, parent_count in enumerate(parents):
        done = sum(parents[:number])

        def report(count: int, done: int = done) -> None:
            if progress is not None:
                progress(done + count, sum(parents))

        def lists_of(matrix: CSR) -> RowLists:
            lists = RowLists.from_csr(matrix)
            return lists if weights is None else weighted(lists, weights)

        last = number == len(parents) - 1
        if labels_only and not last:
            levels.append(ChunkedWeights.empty(tree.children(number), width=x.width))
            continue
        bearers = _everyone(len(x)) if number == 0 else positives[number - 1]
        chosen = [] if given[number] is None else [given[number]]
        own_negatives = None
        if last and listed is not None:
            chosen = [listed[0]]
            own_negatives = None if listed[1] is None else lists_of(listed[1])
        else:
            mines = number > 0 and (params.mined_levels == "all" or last)
            if params.negatives in ("man", "tfn+man") and mines:
                chosen.append(
                    predicted_nodes(
                        x,
                        tree,
                        levels,
                        bias=params.bias,
                        params=search,
                        nodes=params.mined_nodes,
                        threads=threads,
                    )
                )
            if not chosen or params.negatives in ("tfn", "tfn+man"):
                chosen.append(bearers)
        levels.append(
            solve_level(
                x,
                instances=instance_lists(bearers, chosen, weights=weights),
                positives=lists_of(positives[number]),
                negatives=own_negatives,
                start=starts[number],
                children=tree.children(number),
                params=_for_labels(params) if last else params,
                seed=seed + number,
                threads=threads,
                on_block=report,
            )
        )
        assert len(levels[-1].chunk_rows) == parent_count + 1
    ranker = Ranker(tree, levels, features=x.terms, bias=params.bias, width=x.width)
    return ranker.compressed(params.storage)


def _for_labels(params: RankerParams) -> RankerParams:
    """The settings of the last level."""
    return params if params.label_C is None else replace(params, C=params.label_C)


def _starts(start: Start | Sequence[Start | None] | None, tree: LabelTree) -> list[Start | None]:
    """Weights to start from for every level, nodes in the tree's order."""
    starts: list[Start | None] = [None for _ in tree.parents]
    if start is None or isinstance(start, Start):
        starts[-1] = start
    elif len(start) == len(starts):
        starts = list(start)
    else:
        raise DataError(f"start: give {len(starts)} entries, one per tree level, got {len(start)}")
    last = starts[-1]
    if last is not None:
        if len(last.features) != tree.labels:
            raise DataError(f"start has {len(last.features)} rows for {tree.labels} labels")
        starts[-1] = last.take(tree.leaf_labels)
    return starts


def _everyone(documents: int) -> CSR:
    """All documents under the one root."""
    return as_csr(np.ones((documents, 1), np.float32))


def _document_weights(sample_weight: npt.ArrayLike, documents: int) -> Float32:
    weights = np.asarray(sample_weight, dtype=np.float32)
    if weights.shape != (documents,):
        raise DataError(
            f"sample_weight must have one number per document ({documents}), "
            f"got shape {weights.shape}"
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise DataError("sample_weight: weights must be finite and not negative")
    if not weights.any():
        raise DataError("sample_weight: all weights are 0, no document is left")
    return weights
