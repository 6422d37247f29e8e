"""The checked door to the solver: one level of classifiers, in the form that prediction reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelgrove import _native
from labelgrove.arrays import CSR, Float32, Int32, Int64, as_csr
from labelgrove.errors import ConfigError, DataError
from labelgrove.features import FeatureParts, Features, as_features
from labelgrove.params import Params, param

LOSSES = ("squared_hinge", "hinge", "logistic")
STARTS = ("initial", "centre")
WIDEST_CLUSTER = 2**16  # children are stored as 16-bit offsets


@dataclass
class RankerParams(Params):
    """How the classifiers of a tree's nodes are trained.

    >>> RankerParams(C=2.0).validate().C
    2.0
    """

    loss: Literal["squared_hinge", "hinge", "logistic"] = param(
        "squared_hinge", help="loss of one classifier"
    )
    C: float = param(1.0, gt=0, help="cost of errors against regularisation (elsewhere Cn)")
    label_C: float | None = param(
        None, gt=0, help="C of the labels themselves, below the last clusters; none = C"
    )
    positive_weight: float = param(
        1.0, gt=0, help="factor on C for positive instances (elsewhere Cp / Cn)"
    )
    eps: float = param(
        0.6, gt=0, help="optimality at which the solver stops; smaller is more exact"
    )
    max_iterations: int = param(100, ge=1, help="most sweeps over a label's instances")
    threshold: float = param(0.1, ge=0, help="weights smaller than this are dropped")
    bias: float = param(1.0, ge=0, help="value of the constant feature; 0 = no bias")
    max_nonzeros: int | None = param(None, ge=1, help="most weights kept per node; none = all")
    dense_C: float | None = param(None, gt=0, help="C of the dense features; none = C")
    dense_threshold: float = param(
        0.0, ge=0, help="weights of dense features smaller than this are dropped"
    )
    dense_max_nonzeros: int | None = param(
        None, ge=1, help="most weights of dense features kept per node; none = all"
    )
    start: Literal["initial", "centre"] = param(
        "initial",
        help="what weights given to start from are: where the solver begins (the result is the "
        "same), or what the weights are regularised towards",
    )
    negatives: Literal["tfn", "man", "tfn+man", "given"] = param(
        "tfn+man",
        help="who is a negative: documents that bear the parent (tfn), that the levels above "
        "predict for it (man), both, or only those given to train_ranker",
    )
    mined_levels: Literal["last", "all"] = param(
        "last", help="levels to which man applies; the others use tfn"
    )
    mined_nodes: int | Literal["auto"] | None = param(
        "auto",
        ge=1,
        help="nodes predicted per document for man; auto: 8, but 3 where documents have fewer than "
        "40 terms on average; none = the beam of the search",
    )
    relevance: Literal["none", "induce", "last-level"] = param(
        "none",
        help="cost of a positive: equal, by its share of the document's labels, or so for labels "
        "only",
    )
    relevance_norm: Literal["none", "l1", "l2", "max"] = param(
        "l1", help="how a document's relevances are scaled"
    )
    label_weights: Literal["ignore", "cost"] = param(
        "ignore", help="cost: the weights in the label matrix are costs of positives"
    )
    storage: Literal["float32", "float16", "int8"] = param(
        "float16", help="how the weights of sparse features are kept; see Ranker.compressed"
    )


NEGATIVE_SETTINGS = ("negatives", "mined_levels", "mined_nodes")


def refuse_idle(params: RankerParams, group: str, names: Sequence[str], why: str) -> None:
    """Refuses settings that would do nothing: whoever sets them expects something.

    >>> refuse_idle(RankerParams(label_C=2.0), "matcher", ["label_C"], "levels have one C")
    Traceback (most recent call last):
    labelgrove.errors.ConfigError: matcher.label_C: has no effect, levels have one C
    """
    if idle := params.changed(names, group):
        raise ConfigError(f"{', '.join(idle)}: has no effect, {why}")


@dataclass(frozen=True)
class RowLists:
    """For each node a sorted list of row numbers, and a weight for each of them.

    >>> RowLists.from_csr(as_csr([[1.0, 0.0], [1.0, 1.0]])).rows.tolist()
    [0, 1, 1]
    """

    indptr: Int64
    rows: Int32
    weights: Float32

    def parts(self) -> tuple[Int64, Int32, Float32]:
        """The arrays as kernels read them."""
        return self.indptr, self.rows, self.weights

    @classmethod
    def from_csr(cls, matrix: CSR) -> RowLists:
        """The columns of a rows x nodes matrix as lists.

        >>> RowLists.from_csr(as_csr([[1.0, 0.0], [1.0, 1.0]])).indptr.tolist()
        [0, 2, 3]
        """
        columns = as_csr(matrix).tocsc()
        columns.sort_indices()
        return cls(
            columns.indptr.astype(np.int64),
            columns.indices.astype(np.int32),
            columns.data.astype(np.float32),
        )


@dataclass(frozen=True)
class Start:
    """Weights that a level's nodes start from, such as the output layer of a neural network.

    ``weights`` has one row per node: a SciPy matrix for the sparse features, an array for the dense
    ones, or :class:`~labelgrove.features.Features` for both. ``bias`` is what a node adds to its
    margins.

    >>> Start([[0.5, -1.0]], bias=[0.25]).features
    Features(1 rows, 0 sparse + 2 dense)
    """

    weights: Any
    bias: npt.ArrayLike | None = None

    @property
    def features(self) -> Features:
        return as_features(self.weights, name="start")

    def take(self, rows: Any) -> Start:
        """Some nodes, in the order given."""
        bias = None if self.bias is None else np.asarray(self.bias)[rows]
        return Start(self.features.take(rows), bias)


@dataclass(frozen=True)
class ChunkedWeights:
    """Weights of one level's nodes; the children of one parent are stored together as a chunk.

    A chunk lists, in order, the features that any child uses, and for each feature the children
    (offsets from the parent's first child) and their weights. Chunk p has features
    ``chunk_rows[p] .. chunk_rows[p+1]`` and entries ``chunk_entries[p] .. chunk_entries[p+1]``;
    ``row_start`` holds one more number per chunk than it has features.

    ``dense`` has the weights of d dense features, chunk after chunk: chunk p is a d x width matrix
    (children of one feature side by side) that begins at d times the number of p's first child.

    Compressed (see labelgrove.storage), ``children`` are bytes where no parent has more than 256,
    and ``values`` are halves, or bytes that the node's number in ``scales`` multiplies.
    """

    chunk_rows: Int64
    chunk_entries: Int64
    features: Int32
    row_start: npt.NDArray[np.uint32]
    children: npt.NDArray[Any]  # uint16 or uint8
    values: npt.NDArray[Any]  # float32, float16 or int8
    bias: Float32
    dense: npt.NDArray[np.float16] = field(default_factory=lambda: np.zeros(0, np.float16))
    scales: Float32 = field(default_factory=lambda: np.zeros(0, np.float32))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def empty(cls, children: Int64, *, width: int = 0) -> ChunkedWeights:
        """A level without any weight: all its margins are 0.

        >>> len(ChunkedWeights.empty(np.array([0, 3])).bias)
        3
        """
        parents, nodes = len(children) - 1, int(children[-1])
        return cls(
            chunk_rows=np.zeros(parents + 1, np.int64),
            chunk_entries=np.zeros(parents + 1, np.int64),
            features=np.zeros(0, np.int32),
            row_start=np.zeros(parents, np.uint32),
            children=np.zeros(0, np.uint16),
            values=np.zeros(0, np.float32),
            bias=np.zeros(nodes, np.float32),
            dense=np.zeros(nodes * width, np.float16),
        )

    @classmethod
    def concat(cls, parts: list[ChunkedWeights]) -> ChunkedWeights:
        """Chunks of consecutive parents as one level; empties ``parts`` to save memory."""

        def pointers(name: str) -> Int64:
            ends = [getattr(part, name)[1:] for part in parts]
            base = np.cumsum([0] + [int(getattr(part, name)[-1]) for part in parts])
            shifted = [end + start for end, start in zip(ends, base[:-1], strict=True)]
            return np.concatenate([np.zeros(1, np.int64), *shifted])

        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {n: pointers(n) for n in ("chunk_rows", "chunk_entries")}
        for name in ("features", "row_start", "children", "values", "bias", "dense", "scales"):
            joined[name] = np.concatenate([getattr(part, name) for part in parts])
        return cls(**joined)


def solve_level(
    features: Any,
    *,
    instances: RowLists,
    positives: RowLists,
    children: Int64,
    params: RankerParams,
    negatives: RowLists | None = None,
    start: Start | None = None,
    seed: int = 0,
    threads: int | None = None,
    on_block: Callable[[int], None] | None = None,
) -> ChunkedWeights:
    """Trains one classifier per child node on the instances of its parent.

    ``children[p] .. children[p+1]`` are the nodes below parent p; ``instances`` has a list for each
    parent, ``positives`` one for each child; their weights are factors on the costs of errors. An
    instance of weight 0 is nobody's negative. ``negatives`` may have a list for each child, of
    those instances that are its negatives, with their factors; then the weights of ``instances`` do
    not count. ``start`` has a row for each child.
    ``on_block`` is told the number of parents done from time to time, which is also when an
    interrupt gets through.
    """
    parents = len(children) - 1
    nodes = int(children[-1])
    if len(instances.indptr) != parents + 1 or len(positives.indptr) != nodes + 1:
        raise DataError("instances need one list per parent and positives one list per child")
    if negatives is not None and len(negatives.indptr) != nodes + 1:
        raise DataError("negatives need one list per child")
    widest = int(np.diff(children).max(initial=0))
    if widest > WIDEST_CLUSTER:
        raise DataError(
            f"a cluster has {widest:,} labels; at most {WIDEST_CLUSTER:,} fit: lower max_leaf_size"
        )
    given = as_features(features)
    parts = given.parts()
    for name, lists in (
        ("instances", instances),
        ("positives", positives),
        ("negatives", negatives),
    ):
        if lists is None or len(lists.rows) == 0:
            continue
        if not 0 <= lists.rows.min() <= lists.rows.max() < parts.rows:
            raise DataError(f"{name}: a row number lies outside 0..{parts.rows - 1}")
    options = _native.SolverOptions(
        loss=LOSSES.index(params.loss),
        cost_positive=params.C * params.positive_weight,
        cost_negative=params.C,
        bias=params.bias,
        eps=params.eps,
        max_iterations=params.max_iterations,
        threshold=params.threshold,
        max_nonzeros=params.max_nonzeros or 0,
        # The dense block as if it had a C of its own: larger features are regularised less.
        dense_scale=math.sqrt((params.dense_C or params.C) / params.C),
        dense_threshold=params.dense_threshold,
        dense_max_nonzeros=params.dense_max_nonzeros or 0,
        start=0 if start is None else 1 + STARTS.index(params.start),
    )
    start_parts = None if start is None else _start_parts(start, nodes, given, params.bias)
    solved = []
    for first, last in _blocks(np.diff(instances.indptr) * np.diff(children)):
        arrays = _native.solve_clusters(
            features=parts,
            instances=instances.parts(),
            positives=positives.parts(),
            negatives=None if negatives is None else negatives.parts(),
            start=start_parts,
            children=children,
            first=first,
            last=last,
            options=options,
            seed=seed,
            threads=threads or 0,
        )
        arrays["dense"] = arrays["dense"].view(np.float16)
        solved.append(ChunkedWeights(**arrays))
        if on_block is not None:
            on_block(last)
    return ChunkedWeights.concat(solved)


def _start_parts(
    start: Start, nodes: int, like: Features, bias: float
) -> tuple[FeatureParts, Float32]:
    """Weights to start from, checked, as the kernel reads them."""
    weights = start.features
    for kind, columns, wanted in (
        ("sparse", weights.terms, like.terms),
        ("dense", weights.width, like.width),
    ):
        if columns not in (0, wanted):
            raise DataError(f"start has {columns} {kind} features, the documents have {wanted}")
    added = np.zeros(0, np.float32) if start.bias is None else np.asarray(start.bias, np.float32)
    if len(weights) != nodes or (start.bias is not None and added.shape != (nodes,)):
        raise DataError(
            f"start needs one row of weights and one bias for each of {nodes} nodes, "
            f"got {len(weights)} rows and {added.shape} biases"
        )
    if not np.isfinite(added).all():
        raise DataError("start: the bias contains NaN or infinity")
    if added.any():
        if bias == 0:
            raise DataError("start has a bias, but ranker.bias is 0: there is no constant feature")
        added = added / np.float32(bias)
    return weights.parts(name="start"), added


def _blocks(work: Int64, *, blocks: int = 16, fewest: int = 64) -> list[tuple[int, int]]:
    """Ranges of parents of about equal work, large enough that threads seldom wait."""
    parents = len(work)
    blocks = max(1, min(blocks, parents // fewest))
    done = np.cumsum(work + 1.0)
    cuts = np.searchsorted(done, np.arange(1, blocks) * (done[-1] / blocks)) + 1
    edges = np.unique(np.concatenate([[0], np.minimum(cuts, parents), [parents]]))
    return [(int(a), int(b)) for a, b in pairwise(edges)]
