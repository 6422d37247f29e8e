"""k-means over labels: in this process, or in tasks of an engine that get the rows they need.

A split depends only on the rows of its node and on the node's number, so it has the same bits
wherever it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from labelgrove import _native
from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import Int32, Int64, offsets
from labelgrove.core.resources import thread_count
from labelgrove.data.blocks import PIECES_PER_WORKER, Blocks, even_cuts, joined
from labelgrove.data.features import Features


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
