"""The label tree: which labels belong together, and how coarse groups split into finer ones.

k-means splits them in this process, or in tasks of an engine that get the rows they need. A split
depends only on the rows of its node and on the node's number, so it has the same bits wherever it
is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from labelgrove import _native
from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import Array, Int32, Int64, MatrixLike, offsets
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.core.resources import thread_count
from labelgrove.data.blocks import PIECES_PER_WORKER, Blocks, even_cuts, joined
from labelgrove.data.features import Features, as_features
from labelgrove.errors import ConfigError, DataError


@dataclass
class TreeParams(Params):
    """How a label tree is grown."""

    kind: Literal["balanced", "kway"] = param(
        "balanced",
        help="balanced: halves of equal size, joined; kway: k-means clusters of any size (Bonsai)",
    )
    branching: int = param(16, ge=2, help="children of an inner node; for kway the most of them")
    max_leaf_size: int = param(
        100, ge=1, help="most labels in one cluster of the last level; kway stops splitting there"
    )
    max_depth: int = param(3, ge=1, help="most levels of a kway tree, the labels' own included")
    top_width: int | None = param(
        None, ge=1, help="stop joining when a level has at most this many nodes; none = branching"
    )
    kmeans_iterations: int = param(20, ge=1, help="most rounds of k-means for one split")
    label_features: Literal[
        "pifa", "pifa-plain", "smoothed-pifa", "smoothed-sums", "text", "pifa+text"
    ] = param(
        "pifa",
        help="what labels are clustered by: their documents (pifa; plain = unweighted; smoothed by "
        "co-occurrence; smoothed-sums = sums of documents, not scaled before they are smoothed), "
        "their own text, or the sum of both",
    )
    text_weight: float = param(0.5, ge=0, le=1, help="share of the text in pifa+text")
    features_per_label: int | None = param(
        None, ge=1, help="largest features kept per label while the tree grows; none = all"
    )


class LabelTree:
    """Levels of nodes over the labels; a level is an array with the parent of each of its nodes.

    The first level is below one root (all parents 0), the last level has one leaf per label. The
    children of a node are contiguous: parent arrays ascend. ``leaf_labels[position]`` is the label
    column at a leaf, ``leaf_positions[column]`` is the reverse. Arrays are read-only.

    >>> tree = LabelTree([[0, 0], [0, 0, 1]], leaf_labels=[2, 0, 1])
    >>> tree.widths, tree.leaf_positions.tolist(), tree.children(1).tolist()
    ((2, 3), [1, 2, 0], [0, 2, 3])
    """

    def __init__(self, parents: Sequence[npt.ArrayLike], leaf_labels: npt.ArrayLike) -> None:
        if not parents:
            raise DataError("a label tree needs at least one level")
        self.parents: tuple[Int32, ...] = tuple(_frozen(level) for level in parents)
        self.leaf_labels: Int32 = _frozen(leaf_labels)
        above = 1
        for number, level in enumerate(self.parents):
            ends = len(level) > 0 and level[0] == 0 and level[-1] == above - 1
            if not ends or not np.isin(np.diff(level), (0, 1)).all():
                raise DataError(
                    f"tree level {number}: parents must ascend from 0 to {above - 1} and leave "
                    "none out"
                )
            above = len(level)
        if len(self.leaf_labels) != above:
            raise DataError(f"the tree has {above} leaves but {len(self.leaf_labels)} leaf labels")
        positions = np.full(above, -1, np.int32)
        inside = (self.leaf_labels >= 0) & (self.leaf_labels < above)
        positions[self.leaf_labels[inside]] = np.flatnonzero(inside)
        if (positions < 0).any():
            missing = int(np.argmin(positions))
            raise DataError(f"leaf labels are not a permutation: label column {missing} is missing")
        self.leaf_positions: Int32 = _frozen(positions)

    @property
    def labels(self) -> int:
        """Number of labels."""
        return len(self.leaf_labels)

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes per level, from the first below the root to the labels."""
        return tuple(len(level) for level in self.parents)

    def children(self, level: int) -> Int64:
        """Where the children of each node above ``level`` begin: node p has [out[p], out[p+1])."""
        above = 1 if level == 0 else len(self.parents[level - 1])
        return np.searchsorted(self.parents[level], np.arange(above + 1)).astype(np.int64)

    def coarsen(self, levels: int) -> LabelTree:
        """The first ``levels`` levels as a tree of their own; its labels are this tree's nodes."""
        if not 1 <= levels <= len(self.parents):
            raise ConfigError(f"levels: must be 1 to {len(self.parents)}, got {levels}")
        if levels == len(self.parents):
            return self
        return LabelTree(self.parents[:levels], np.arange(self.widths[levels - 1]))

    def state(self) -> Part:
        arrays: dict[str, Array] = {
            f"parents.{number}": level for number, level in enumerate(self.parents)
        }
        return Part({"levels": len(self.parents)}, arrays | {"leaf_labels": self.leaf_labels})

    @classmethod
    def from_state(cls, part: Part) -> LabelTree:
        """The tree that :meth:`state` described, checked again."""
        levels = range(int(part.config["levels"]))
        return cls([part.arrays[f"parents.{t}"] for t in levels], part.arrays["leaf_labels"])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelTree):
            return NotImplemented
        mine, theirs = self.state().arrays, other.state().arrays
        return mine.keys() == theirs.keys() and all(
            np.array_equal(mine[name], theirs[name]) for name in mine
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LabelTree({'-'.join(map(str, self.widths))})"


def build_tree(
    label_features: Features | Blocks | MatrixLike,
    params: TreeParams | None = None,
    *,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
) -> LabelTree:
    """Grows a tree over the rows of ``label_features``, the labels, by spherical k-means.

    For a balanced tree, labels are halved until a cluster has at most ``max_leaf_size`` of them.
    Then ``branching`` neighbours at a time are joined until few enough nodes are left for the first
    level. A k-way tree splits clusters into up to ``branching`` parts of any size. With no more
    labels than ``max_leaf_size`` the tree is one cluster: one-versus-all. Blocks are clustered by
    their engine.

    >>> build_tree(np.eye(8), TreeParams(branching=2, max_leaf_size=2)).widths
    (2, 4, 8)
    """
    params = (params or TreeParams()).validate("tree")
    features = label_features
    if not isinstance(features, Blocks):
        features = as_features(features, name="label_features")
    labels = len(features)
    if labels == 0:
        raise DataError("cannot build a tree over no labels")
    if seed < 0:
        raise ConfigError(f"seed: must be at least 0, got {seed}")
    if params.kind == "kway":
        return _kway_tree(features, params, seed, progress)
    depth = _depth(labels, params.max_leaf_size)
    if depth == 0:
        return LabelTree([np.zeros(labels, np.int32)], np.arange(labels, dtype=np.int32))
    order = halved(
        features, depth=depth, max_iterations=params.kmeans_iterations, seed=seed, progress=progress
    )
    top, *inner = tree_widths(labels, params)[:-1]
    clusters = np.repeat(np.arange(2**depth), np.diff(halves(labels, depth)))
    joined = [np.arange(width) // params.branching for width in inner]
    return LabelTree([np.zeros(top), *joined, clusters], order)


def tree_widths(labels: int, params: TreeParams) -> tuple[int, ...]:
    """Nodes per level of the balanced tree that :func:`build_tree` would grow over the labels."""
    depth = _depth(labels, params.max_leaf_size)
    widths = [labels]
    nodes = 2**depth
    if depth:
        widths.append(nodes)
        while nodes > (params.top_width or params.branching):
            nodes = -(-nodes // params.branching)
            widths.append(nodes)
    return tuple(widths[::-1])


def children_of(nodes: Array, starts: Int64) -> tuple[Int64, Int64]:
    """The children of each of ``nodes``, one node after another, and how many each node has."""
    first = starts[nodes]
    counts = starts[nodes + 1] - first
    ends = np.cumsum(counts)
    return np.arange(counts.sum()) + np.repeat(first - ends + counts, counts), counts


def allowed_nodes(
    tree: LabelTree, allowed: npt.NDArray[np.bool_]
) -> tuple[list[npt.NDArray[np.bool_]], list[Array]]:
    """Per level, which nodes have an allowed label below; and how many such children nodes have."""
    levels = [allowed[tree.leaf_labels]]
    children: list[Array] = []
    for level in range(len(tree.widths) - 1, 0, -1):
        counts = np.diff(offsets(levels[0])[tree.children(level)])
        children.insert(0, counts)
        levels.insert(0, counts > 0)
    return levels, children


def nodes_needed(levels: Sequence[Array], k: int) -> list[int]:
    """How many nodes to keep on each cluster level, so that k labels are below them for certain.

    For each level, from the top, ``levels`` has the number of children of every node that may be
    kept; nodes without children do not count.
    """
    needed: list[int] = []
    for counts in reversed(levels):
        fewest = np.cumsum(np.sort(counts[counts > 0]))
        k = min(len(fewest), int(np.searchsorted(fewest, k)) + 1)
        needed.insert(0, k)
    return needed


def _kway_tree(
    features: Features | Blocks,
    params: TreeParams,
    seed: int,
    progress: Callable[[float, float], None] | None,
) -> LabelTree:
    """Level by level; a cluster that is small enough becomes an only child on the next level."""
    labels = len(features)
    order, bounds = np.arange(labels, dtype=np.int32), np.array([0, labels], np.int64)
    parents: list[npt.NDArray[np.int64]] = []
    first_node = 0  # numbers nodes over all levels; the number picks the seed
    while len(parents) < params.max_depth - 1 and np.diff(bounds).max() > params.max_leaf_size:
        cluster = split_level(
            features,
            order=order,
            bounds=bounds,
            clusters=params.branching,
            max_leaf_size=params.max_leaf_size,
            max_iterations=params.kmeans_iterations,
            seed=seed,
            first_node=first_node,
        )
        first_node += len(bounds) - 1
        node = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        arranged = np.lexsort((order, cluster, node))
        order, node, cluster = order[arranged], node[arranged], cluster[arranged]
        changes = np.flatnonzero((np.diff(node) != 0) | (np.diff(cluster) != 0)) + 1
        bounds = np.concatenate([[0], changes, [labels]]).astype(np.int64)
        parents.append(node[bounds[:-1]])
        if progress is not None:
            sizes = np.diff(bounds)
            progress(int(sizes[sizes <= params.max_leaf_size].sum()), labels)
    parents.append(np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)))
    return LabelTree(parents, order)


def _depth(labels: int, max_leaf_size: int) -> int:
    """How often to halve until clusters are small enough, but not so often that one is empty."""
    depth = 0
    while max_leaf_size << depth < labels and 2 << depth <= labels:
        depth += 1
    return depth


def _frozen(values: npt.ArrayLike) -> Int32:
    array = np.array(values, dtype=np.int32)
    if array.ndim != 1:
        raise DataError(f"a tree is made of one-dimensional arrays, got shape {array.shape}")
    array.flags.writeable = False
    return array


def halved(
    features: Features | Blocks,
    *,
    depth: int,
    max_iterations: int,
    seed: int,
    progress: Progress | None,
) -> Int32:
    """An order of the labels in which 2^depth clusters of equal size are consecutive.

    Of blocks, one task makes the first layers, and then one each subtree below them. Subtrees begin
    where the kernel copies rows: it numbers features again there, which decides in which order they
    are added up.
    """
    labels = len(features)
    if not isinstance(features, Blocks):

        def on_work(share: float) -> None:
            if progress is not None:
                progress(share * labels, labels)

        return halve_piece(depth, max_iterations, seed, 1, features, on_work=on_work)
    engine = features.engine
    order: Int64 = np.arange(labels)
    layer = 0
    while layer < depth:
        subtrees = 2**layer
        layers = min(_native.KMEANS_LAYERS_PER_COPY, depth - layer)
        if layer and subtrees >= engine.workers:
            layers = depth - layer
        groups = [order[first:last] for first, last in pairwise(halves(labels, layer).tolist())]
        gathered = features.gather(groups)
        refs = [
            engine.call(halve_piece, layers, max_iterations, seed, subtrees + number, *parts)
            for number, parts in enumerate(gathered)
        ]
        del gathered  # the engine may free rows as soon as their subtree is grown
        pieces = []
        for group, places in zip(groups, engine.results(refs), strict=True):
            pieces.append(group[places])
            if progress is not None:
                done = layer * labels + layers * sum(map(len, pieces))
                progress(done / depth, labels)
        order = np.concatenate(pieces)
        layer += layers
    return order.astype(np.int32)


def halve_piece(
    depth: int,
    max_iterations: int,
    seed: int,
    root: int,
    *parts: Features,
    on_work: Callable[[float], None] | None = None,
) -> Int32:
    """Grows the subtree below the node with the number ``root``, whose rows these are."""
    return _native.balanced_kmeans(
        joined(parts).parts(name="label_features"),
        depth=depth,
        max_iterations=max_iterations,
        seed=seed,
        root=root,
        threads=thread_count(),
        on_work=on_work,
    )


def halves(labels: int, depth: int) -> Int64:
    """Bounds of the 2^depth slices of halved rows, as the kernel halves them."""
    bounds = np.array([0, labels], np.int64)
    for _ in range(depth):
        finer = np.empty(2 * len(bounds) - 1, np.int64)
        finer[::2] = bounds
        finer[1::2] = (bounds[:-1] + bounds[1:]) // 2
        bounds = finer
    return bounds


def split_level(
    features: Features | Blocks,
    *,
    order: Int32,
    bounds: Int64,
    clusters: int,
    max_leaf_size: int,
    max_iterations: int,
    seed: int,
    first_node: int,
) -> Int32:
    """Splits the nodes of a k-way tree's level that have more than ``max_leaf_size`` labels.

    Node n has the labels order[bounds[n] : bounds[n + 1]] and the number ``first_node`` + n. The
    cluster of each of them comes back, 0 in nodes that are not split.
    """
    options = (clusters, max_leaf_size, max_iterations, seed)
    if not isinstance(features, Blocks):
        return split_nodes(order, bounds, first_node, options, features)
    engine = features.engine
    sizes = np.diff(bounds)
    large = sizes > max_leaf_size
    sizes[~large] = 0  # workers need no rows of nodes that stay whole
    split = np.repeat(large, np.diff(bounds))
    order, bounds = order[split], offsets(sizes)
    cuts = even_cuts(sizes, PIECES_PER_WORKER * engine.workers)
    pieces, groups = [], []
    for first, last in pairwise(cuts.tolist()):
        own = order[bounds[first] : bounds[last]]
        rows = np.sort(own).astype(np.int64)
        local = np.searchsorted(rows, own).astype(np.int32)
        pieces.append((local, bounds[first : last + 1] - bounds[first], first_node + first))
        groups.append(rows)
    refs = [
        engine.call(split_nodes, *piece, options, *parts)
        for piece, parts in zip(pieces, features.gather(groups), strict=True)
    ]
    positions = np.zeros(len(split), np.int32)
    positions[split] = np.concatenate([*engine.results(refs)])
    return positions


def split_nodes(
    order: Int32,
    bounds: Int64,
    first_node: int,
    options: tuple[int, int, int, int],
    *parts: Features,
) -> Int32:
    """Splits some neighbouring nodes of a level; ``order`` counts within the rows given."""
    clusters, max_leaf_size, max_iterations, seed = options
    return _native.kway_kmeans(
        joined(parts).parts(name="label_features"),
        order=order,
        bounds=bounds,
        clusters=clusters,
        max_leaf_size=max_leaf_size,
        max_iterations=max_iterations,
        seed=seed,
        first_node=first_node,
        threads=thread_count(),
    )
