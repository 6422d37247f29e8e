"""A level of a ranker trained in pieces by the workers of an engine.

A piece is some neighbouring parents with their children. Its worker gets the rows that are
instances of these parents and no others. Random numbers depend on a node's number in its level, so
the weights have the bits of :func:`labelgrove.ranking.solver.solve_level`, however they are cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from labelgrove.core.arrays import CSR, Int64, as_csr
from labelgrove.core.late import sparse
from labelgrove.data.blocks import PIECES_PER_WORKER, Blocks, even_cuts, joined
from labelgrove.data.features import Features
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import SearchParams, beam_per_level
from labelgrove.ranking.negatives import NodeMiner, nodes_to_mine
from labelgrove.ranking.solver import RankerParams, RowLists, solve_level
from labelgrove.ranking.weights import ChunkedWeights, Storage, compress


class Piece(NamedTuple):
    """Some parents of a level; rows are numbered within the piece."""

    instances: RowLists
    positives: RowLists
    negatives: RowLists | None
    children: Int64  # numbers in the level, not in the piece: random numbers depend on them
    params: RankerParams
    storage: Storage | None
    widest: int  # most children of a parent in the whole level, which decides how they are stored
    seed: int


def solve_in_pieces(
    features: Blocks,
    *,
    instances: RowLists,
    positives: RowLists,
    children: Int64,
    params: RankerParams,
    negatives: RowLists | None = None,
    storage: Storage | None = None,
    seed: int = 0,
    on_block: Callable[[float], None],
) -> ChunkedWeights:
    """What ``solve_level`` gives for all rows; ``on_block`` gets the number of finished parents."""
    work = np.diff(instances.indptr) * np.diff(children)
    cuts = even_cuts(work, PIECES_PER_WORKER * features.engine.workers)
    widest = int(np.diff(children).max())
    pieces, groups = [], []
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        nodes = int(children[first]), int(children[last])
        own = _lists(instances, first, last)
        rows = np.unique(own.rows).astype(np.int64)
        groups.append(rows)
        pieces.append(
            Piece(
                _renumbered(own, rows),
                _renumbered(_lists(positives, *nodes), rows),
                None if negatives is None else _renumbered(_lists(negatives, *nodes), rows),
                children[first : last + 1],
                params,
                storage,
                widest,
                seed,
            )
        )
    engine = features.engine
    gathered = features.gather(groups)
    refs = [
        engine.call(solve_piece, piece, *parts)
        for piece, parts in zip(pieces, gathered, strict=True)
    ]
    del gathered, groups  # the engine may free rows as soon as their piece is solved
    solved = []
    for number, part in enumerate(engine.results(refs)):
        solved.append(part)
        on_block(float(cuts[number + 1]))
    return ChunkedWeights.concat(solved)


def solve_piece(piece: Piece, *parts: Features) -> ChunkedWeights:
    """Trains the children of a piece's parents; compressed weights are half as much to send."""
    first = int(piece.children[0])
    weights = solve_level(
        joined(parts),
        instances=piece.instances,
        positives=_behind(piece.positives, first),
        negatives=None if piece.negatives is None else _behind(piece.negatives, first),
        children=piece.children,
        params=piece.params,
        seed=piece.seed,
    )
    if piece.storage is None:
        return weights
    return compress(weights, piece.children - first, piece.storage, widest=piece.widest)


def predicted_in_blocks(
    documents: Blocks,
    tree: LabelTree,
    levels: list[ChunkedWeights],
    *,
    bias: float,
    params: SearchParams,
    nodes: int | Literal["auto"] | None = None,
) -> CSR:
    """What ``NodeMiner`` finds for all rows; every block is searched by itself."""
    upper = tree.coarsen(len(levels))
    terms = np.inf
    if documents.is_sparse and not documents.width:
        terms = documents.entries / len(documents)
    count = nodes_to_mine(nodes, terms, beam=beam_per_level(params.beam, upper.widths)[-1])
    engine = documents.engine
    shared = engine.put(Mining(upper, levels, bias, params, count))
    found = [*engine.results(engine.map(mined_nodes, documents.refs, shared))]
    return as_csr(sparse.vstack(found, format="csr"))


class Mining(NamedTuple):
    """What a search for negatives needs besides documents."""

    tree: LabelTree
    levels: list[ChunkedWeights]
    bias: float
    params: SearchParams
    nodes: int


def mined_nodes(block: Features, mining: Mining) -> CSR:
    """The best nodes of a block's documents."""
    if len(block) == 0:
        return as_csr(sparse.csr_array((0, mining.tree.labels), dtype=np.float32))
    miner = NodeMiner(
        block,
        mining.tree,
        mining.levels,
        bias=mining.bias,
        params=mining.params,
        nodes=mining.nodes,
    )
    return miner(slice(0, len(block)))


def _lists(lists: RowLists, first: int, last: int) -> RowLists:
    """The lists of some neighbouring nodes."""
    ends: Any = lists.indptr[first : last + 1]
    own = slice(ends[0], ends[-1])
    return RowLists(ends - ends[0], lists.rows[own], lists.weights[own])


def _renumbered(lists: RowLists, rows: Int64) -> RowLists:
    """The same lists over ``rows`` alone, which contain all of theirs."""
    return RowLists(lists.indptr, np.searchsorted(rows, lists.rows).astype(np.int32), lists.weights)


def _behind(lists: RowLists, nodes: int) -> RowLists:
    """The lists after those, which are empty, of so many nodes that belong to other pieces."""
    return RowLists(np.pad(lists.indptr, (nodes, 0)), lists.rows, lists.weights)
