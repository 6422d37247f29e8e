"""The linear ranker: one classifier per tree node, trained level by level, searched by beam.

Several trees are searched as one: a label's score is its mean over the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.aliases import Progress, Table
from labelgrove.core.arrays import (
    CSR,
    Array,
    CsrParts,
    Float32,
    Int64,
    MatrixLike,
    as_csr,
    csr_parts,
    matrix_parts,
    stacked_rows,
    with_values,
)
from labelgrove.core.late import sparse
from labelgrove.core.part import Part
from labelgrove.core.processes import is_first_process
from labelgrove.core.scratch import ColumnLists, Scratch
from labelgrove.core.topk import Combine, TopK, merge_lists
from labelgrove.data.blocks import PIECES_PER_WORKER, Blocks, even_cuts, joined
from labelgrove.data.features import FeatureParts, Features, as_features
from labelgrove.disk.run_folder import Checkpoints
from labelgrove.errors import DataError
from labelgrove.labels.masks import LabelMask, label_columns
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import (
    BeamSearch,
    SearchParams,
    beam_per_level,
    features_text,
    sparse_only,
)
from labelgrove.ranking.negatives import LevelLists, Miner, NodeMiner, nodes_to_mine, shortlisted
from labelgrove.ranking.solver import LevelTask, RankerParams, solve_level
from labelgrove.ranking.weights import ChunkedWeights, Columns, compress, read_columns

Rows: TypeAlias = Features | FeatureParts | CsrParts | MatrixLike  # of documents

# Each of several trees finds twice the labels asked for: at least the first number, so that the
# best ten and fewer do not depend on k, and at most the second if fewer are asked for.
FEWEST_CANDIDATES, MOST_CANDIDATES = 20, 100


class Ranker(BeamSearch):
    """A label tree with the weights of its nodes; :meth:`search` finds the best labels.

    >>> X, Y = np.eye(3), np.eye(3)
    >>> ranker = train_ranker(X, Y, LabelTree([[0, 0, 0]], [0, 1, 2]))
    >>> ranker.search(X, k=1)[0].ravel().tolist()
    [0, 1, 2]
    """

    def search(
        self,
        documents: Rows,
        *,
        k: int = 10,
        params: SearchParams | None = None,
        allow: LabelMask | None = None,
    ) -> TopK:
        """The k best labels of each document: columns, scores (n x k) and counts.

        Rows are sorted by (-score, column). The tree is pruned to the labels of ``allow`` first,
        and the beam widens if it must, so that a row is full unless fewer than k labels are
        allowed; the rest is padding: -1 and -inf.
        """
        allowed = None if allow is None else allow.over(self.tree)
        return self(self.parts(documents), k=k, params=self._valid(params), allowed=allowed)

    def score(
        self, documents: Rows, columns: CSR | npt.ArrayLike, *, params: SearchParams | None = None
    ) -> MatrixLike:
        """Scores of given labels, the numbers that :meth:`search` finds for them.

        ``columns`` is a list of m label columns, for an n x m array; or an n x labels sparse
        pattern, for a sparse matrix with a score at every stored entry (a score may be 0).
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
            indptr, asked = csr_parts(pattern, name="columns", finite=False)[:2]
            scores = self.score_pairs(parts, indptr=indptr, columns=asked, params=params)
            return with_values(pattern, scores)
        same = label_columns(columns, self.tree.labels, name="columns")
        indptr, asked = np.arange(rows + 1, dtype=np.int64) * len(same), np.tile(same, rows)
        scores = self.score_pairs(parts, indptr=indptr, columns=asked, params=params)
        return scores.reshape(rows, len(same))

    def _valid(self, params: SearchParams | None) -> SearchParams:
        """Validated settings; settings equal to those of the last call are known to be valid."""
        params = SearchParams() if params is None else params
        settings = vars(params)
        if settings != self._last_settings or isinstance(params.beam, list):
            params.validate("search")
            self._last_settings = dict(settings)
        return params

    def parts(self, documents: Rows) -> FeatureParts:
        """Documents as the kernels read them; parts come from our own kernels and are sound."""
        if isinstance(documents, FeatureParts):
            return documents
        if isinstance(documents, CsrParts):
            return sparse_only(documents)
        if not isinstance(documents, Features):
            # A single block, and the model knows which one.
            if self.width == 0:
                return sparse_only(matrix_parts(documents, name="documents"))
            if self.features == 0 and sparse.issparse(documents):
                documents = as_csr(documents, name="documents").toarray()
        return as_features(documents, name="documents").parts(name="documents")

    def with_levels(self, tree: LabelTree, levels: list[ChunkedWeights]) -> Ranker:
        """A ranker of the same features with another tree and other weights."""
        return Ranker(tree, levels, features=self.features, bias=self.bias, width=self.width)

    def columns(self, level: int, nodes: npt.ArrayLike) -> Columns:
        """The weights of some nodes of a level (counted from 0) in single precision."""
        weights, children = self.levels[level], self.tree.children(level)
        return read_columns(weights, children, nodes, features=self.features, width=self.width)

    def state(self) -> Part:
        tree = {f"tree.{name}": array for name, array in self.tree.state().arrays.items()}
        levels = {f"level.{name}": array for name, array in _level_arrays(self.levels).items()}
        config = {"levels": len(self.levels), "features": self.features, "width": self.width}
        return Part(config | {"bias": self.bias}, tree | levels)

    @classmethod
    def from_state(cls, part: Part) -> Ranker:
        """The ranker that :meth:`state` described; memory-mapped weights stay on disk."""
        count = int(part.config["levels"])
        return cls(
            LabelTree.from_state(Part({"levels": count}, _below(part.arrays, "tree."))),
            _levels_of(part, "level.", count),
            features=int(part.config["features"]),
            bias=float(part.config["bias"]),
            width=int(part.config.get("width", 0)),
        )

    def __reduce__(self) -> tuple[object, ...]:
        # For copies and worker processes; the other side builds its own native model.
        return type(self).from_state, (self.state(),)

    def __repr__(self) -> str:
        weights = sum(level.size for level in self.levels)
        known = features_text(self.features, self.width)
        return f"Ranker({self.tree!r}, {known}, {weights:,} weights)"


def candidates(k: int) -> int:
    """How many labels each of several trees finds for the best ``k`` of all."""
    return max(k, min(MOST_CANDIDATES, max(FEWEST_CANDIDATES, 2 * k)))


def search_trees(
    rankers: list[Ranker],
    documents: Rows,
    *,
    k: int,
    params: SearchParams,
    allow: LabelMask | None = None,
) -> TopK:
    """The k best labels by mean score over the trees: columns, scores (n x k) and counts.

    A label that a tree does not find counts as 0 there, or, where scores are margins, as the worst
    label that the tree found for the document.
    """
    if len(rankers) == 1:
        return rankers[0].search(documents, k=k, params=params, allow=allow)
    parts, most = rankers[0].parts(documents), candidates(k)
    lists = [ranker.search(parts, k=most, params=params, allow=allow) for ranker in rankers]
    # All lists are equally wide: a search finds k labels or all allowed ones, and the trees have
    # the same labels.
    columns, scores, _ = (np.stack(arrays) for arrays in zip(*lists, strict=True))
    combine: Combine = "mean-or-last" if params.score_kind == "margin" else "mean"
    return merge_lists(columns, scores, k, combine=combine)


def train_ranker(
    features: Features | Blocks | MatrixLike,
    labels: MatrixLike,
    tree: LabelTree,
    params: RankerParams | None = None,
    *,
    sample_weight: npt.ArrayLike | None = None,
    shortlist: CSR | None = None,
    search: SearchParams | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    checkpoints: Path | None = None,
    scratch: Scratch | None = None,
) -> Ranker:
    """Trains a classifier for every node of ``tree`` on the documents' features and labels.

    - ``features``: a sparse matrix, an array, or ``Features`` with both; or ``Blocks``, whose
      engine trains every level in pieces, with the same result.
    - ``search``: how predicted negatives are found. The first level learns from all documents,
      the others from those that ``params.negatives`` names.
    - ``shortlist``: the labels learn only from its documents and their positives, see
      :func:`shortlisted`; nodes above the labels get no weights, because something else makes
      the shortlists.
    - ``sample_weight``: a factor on each document's costs; 0 leaves it out.
    - ``progress(done, total)``: called several times a second with the number of nodes whose
      children are trained, a fraction where work on some is under way.
    - ``checkpoints``: a folder that keeps finished levels, for when training is interrupted.
    - ``scratch``: where large arrays are made; it does not change the result.

    >>> train_ranker(sparse.eye_array(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    Ranker(LabelTree(2), 2 features, 4 weights)
    """
    params = (params or RankerParams()).validate("ranker")
    search = (search or SearchParams()).validate("search")
    x = features if isinstance(features, Blocks) else as_features(features)
    y = as_csr(labels, name="labels")
    if len(x) != y.shape[0]:
        raise DataError(f"features have {len(x)} rows but labels have {y.shape[0]}")
    if len(x) == 0:
        raise DataError("cannot train on no documents")
    if y.shape[1] != tree.labels:
        raise DataError(f"labels have {y.shape[1]} columns but the tree has {tree.labels} labels")
    listed = None if shortlist is None else shortlisted(shortlist, tree, len(x))
    weights = None if sample_weight is None else _document_weights(sample_weight, len(x))
    if weights is not None and (weights == 0).any():
        rows = np.flatnonzero(weights)
        x, y, weights = x.take(rows), y[rows], weights[rows]
        if listed is not None:
            listed = listed[0][rows], None if listed[1] is None else listed[1][rows]
    scratch = Scratch() if scratch is None else scratch
    lists = LevelLists(y, tree, params, listed, weights, scratch)
    parents = [1, *tree.widths[:-1]]
    saved = Checkpoints(checkpoints) if checkpoints and is_first_process() else None
    levels: list[ChunkedWeights] = []
    if saved is not None and (latest := saved.latest()) is not None:  # it was interrupted
        _, part = latest
        levels = _levels_of(part, "", part.config["levels"])
    for number in range(len(levels), len(parents)):
        done = sum(parents[:number])

        def report(count: float, done: int = done) -> None:
            if progress is not None:
                progress(done + count, sum(parents))

        last = number == len(parents) - 1
        if listed is not None and not last:
            levels.append(ChunkedWeights.empty(tree.children(number), width=x.width))
            continue
        mines = number > 0 and (params.mined_levels == "all" or last)
        miner: Miner | None = None
        if "man" in params.negatives and mines and listed is None:
            how: Table = {"bias": params.bias, "params": search, "nodes": params.mined_nodes}
            if isinstance(x, Blocks):
                miner = predicted_in_blocks(x, tree, levels, **how)
            else:
                miner = NodeMiner(x, tree, levels, **how)
        instances, positives, own_negatives = lists(number, miner)
        task = LevelTask(
            instances,
            positives,
            tree.children(number),
            params.for_labels() if last else params,
            own_negatives,
            # Mining reads the levels above in full precision.
            storage=params.storage if last else None,
            seed=seed + number,
        )
        if isinstance(x, Blocks):
            levels.append(solve_on_workers(x, task, on_block=report))
        else:
            levels.append(solve_level(x, task, scratch=scratch, on_block=report))
        # These lists are large, and the next level makes its own.
        del task, instances, positives, own_negatives, miner
        if saved is not None and not last:  # the last level ends the stage, which is stored
            saved.save(Part({"levels": len(levels)}, _level_arrays(levels)), step=len(levels))
    for number, level in enumerate(levels[:-1]):
        levels[number] = compress(level, tree.children(number), params.storage)
    return Ranker(tree, levels, features=x.terms, bias=params.bias, width=x.width)


def _level_arrays(levels: list[ChunkedWeights]) -> dict[str, Array]:
    return {
        f"{number}.{name}": array
        for number, level in enumerate(levels)
        for name, array in level.arrays().items()
    }


def _levels_of(part: Part, prefix: str, count: int) -> list[ChunkedWeights]:
    """The levels whose arrays :func:`_level_arrays` named."""
    levels = []
    for number in range(count):
        arrays = _below(part.arrays, f"{prefix}{number}.")
        arrays.pop("scales", None)  # of weights in bytes, which earlier releases could store
        levels.append(ChunkedWeights(**arrays))
    return levels


def _below(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names have the prefix, under the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


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


def solve_on_workers(
    features: Blocks, task: LevelTask, *, on_block: Callable[[float], None]
) -> ChunkedWeights:
    """What ``solve_level`` gives for all rows; ``on_block`` gets the number of finished parents.

    A task is some neighbouring parents with their children. Its worker gets the rows that are
    instances of these parents and no others. Random numbers depend on a node's number in its level,
    so the weights have the same bits, however they are cut.
    """
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
