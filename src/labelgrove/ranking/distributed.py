"""A level of a ranker trained by the workers of an engine.

A task is some neighbouring parents with their children. Its worker gets the rows that are
instances of these parents and no others. Random numbers depend on a node's number in its level, so
the weights have the bits of :func:`labelgrove.ranking.solver.solve_level`, however they are cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np

from labelgrove.core.aliases import Table
from labelgrove.core.arrays import CSR, Int64, as_csr, stacked_rows
from labelgrove.core.late import sparse
from labelgrove.core.scratch import ColumnLists
from labelgrove.data.blocks import PIECES_PER_WORKER, Blocks, even_cuts, joined
from labelgrove.data.features import Features
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import SearchParams, beam_per_level
from labelgrove.ranking.negatives import Miner, NodeMiner, nodes_to_mine
from labelgrove.ranking.solver import LevelTask, solve_level
from labelgrove.ranking.weights import ChunkedWeights, compress


def solve_on_workers(
    features: Blocks, task: LevelTask, *, on_block: Callable[[float], None]
) -> ChunkedWeights:
    """What ``solve_level`` gives for all rows; ``on_block`` gets the number of finished parents."""
    engine, children = features.engine, task.children
    work = np.diff(task.instances.indptr) * np.diff(children)
    cuts = even_cuts(work, PIECES_PER_WORKER * engine.workers)
    tasks, groups = [], []
    for first, last in pairwise(cuts.tolist()):
        own = _lists(task.instances, first, last)
        rows = np.unique(own.rows).astype(np.int64)
        nodes = int(children[first]), int(children[last])
        negatives = task.negatives
        if negatives is not None:
            negatives = _renumbered(_lists(negatives, *nodes), rows)
        part = replace(
            task,
            instances=_renumbered(own, rows),
            positives=_renumbered(_lists(task.positives, *nodes), rows),
            negatives=negatives,
            children=children[first : last + 1],
        )
        tasks.append(part)
        groups.append(rows)
    gathered = features.gather(groups)
    refs = [
        engine.call(solve_part, part, task.widest, *blocks)
        for part, blocks in zip(tasks, gathered, strict=True)
    ]
    del gathered, groups  # the engine may free rows as soon as their task is solved
    solved = []
    for number, weights in enumerate(engine.results(refs)):
        solved.append(weights)
        on_block(float(cuts[number + 1]))
    return ChunkedWeights.concat(solved)


def solve_part(task: LevelTask, widest: int, *blocks: Features) -> ChunkedWeights:
    """Trains the children of some parents; compressed weights are half as much to send.

    ``children`` has their numbers in the level, because random numbers depend on them; ``widest``
    is that of the whole level, which decides how weights are stored.
    """
    first = int(task.children[0])
    whole = replace(
        task,
        positives=_behind(task.positives, first),
        negatives=task.negatives and _behind(task.negatives, first),
        storage=None,
    )
    weights = solve_level(joined(blocks), whole)
    if task.storage is None:
        return weights
    return compress(weights, task.children - first, task.storage, widest=widest)


def predicted_in_blocks(
    documents: Blocks,
    tree: LabelTree,
    levels: list[ChunkedWeights],
    *,
    bias: float,
    params: SearchParams,
    nodes: int | Literal["auto"] | None = None,
) -> Miner:
    """What ``NodeMiner`` finds; every block is searched by itself."""
    upper = tree.coarsen(len(levels))
    terms = np.inf
    if documents.is_sparse and not documents.width:
        terms = documents.entries / len(documents)
    count = nodes_to_mine(nodes, terms, beam=beam_per_level(params.beam, upper.widths)[-1])
    engine = documents.engine
    settings = {"levels": levels, "bias": bias, "params": params, "nodes": count}
    shared = engine.put((upper, settings))
    mined = stacked_rows([*engine.results(engine.map(mined_nodes, documents.refs, shared))])
    return lambda rows: as_csr(mined[rows])


def mined_nodes(block: Features, shared: tuple[LabelTree, Table]) -> CSR:
    """The best nodes of a block's documents."""
    tree, settings = shared
    if len(block) == 0:
        return as_csr(sparse.csr_array((0, tree.labels), dtype=np.float32))
    return NodeMiner(block, tree, **settings)(slice(0, len(block)))


def _lists(lists: ColumnLists, first: int, last: int) -> ColumnLists:
    """The lists of some neighbouring nodes."""
    ends = lists.indptr[first : last + 1]
    own = slice(ends[0], ends[-1])
    return ColumnLists(ends - ends[0], lists.rows[own], lists.values[own])


def _renumbered(lists: ColumnLists, rows: Int64) -> ColumnLists:
    """The same lists over ``rows`` alone, which contain all of theirs."""
    return lists._replace(rows=np.searchsorted(rows, lists.rows).astype(np.int32))


def _behind(lists: ColumnLists, nodes: int) -> ColumnLists:
    """The lists after those, which are empty, of so many nodes of other tasks."""
    return lists._replace(indptr=np.pad(lists.indptr, (nodes, 0)))
