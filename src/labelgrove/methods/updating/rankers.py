"""How the rankers of a model get new labels, and learn from new documents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelgrove.core.arrays import CSR, Int64, as_csr
from labelgrove.core.late import sparse
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import Features
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.fitted import Fitted
from labelgrove.methods.updating.growth import GrowthView, Read
from labelgrove.methods.updating.report import Growth, Task, reported
from labelgrove.methods.updating.views import grown_facts
from labelgrove.ranking.growing import (
    GrowthExamples,
    from_own_text,
    joined,
    leaf_columns,
    nearest_clusters,
    sibling_bias,
    solve_columns,
    stand_ins,
    widened,
    with_columns,
    with_labels,
)
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.relevance import Frequencies
from labelgrove.ranking.weights import Columns

SAMPLED_NAMES = 200  # labels whose mean text vector is subtracted from those of new labels


def grown_rankers(model: Fitted, view: GrowthView, task: Task) -> tuple[dict[str, Any], Growth]:
    """The attributes of a model whose rankers have the new labels, and the report."""
    known = len(model.index_)
    new, changed = np.arange(known, len(task.index)), task.changed(known)
    counts = np.zeros(len(task.index), np.int64)
    if task.documents is not None:
        counts = np.bincount(task.documents.labels.indices, minlength=len(task.index))
    learnt, silent = new[counts[new] > 0], new[counts[new] == 0]
    unknown_names = 0
    with task.reporter.stage("read"):
        fresh = None if task.documents is None else view.read(task.documents)
        old = None if task.old is None else view.read(task.old)
        texts = None if len(silent) == 0 else _label_texts(model, view, task.index, silent)
        if texts is not None and texts.features.sparse is not None and not texts.features.width:
            unknown_names = int((np.diff(texts.features.sparse.indptr) == 0).sum())
    rankers = []
    with task.reporter.stage("train", total=len(view.rankers)) as stage:
        for number, ranker in enumerate(view.rankers):
            clusters = np.zeros(len(new), np.int32)
            if fresh is not None and task.documents is not None and len(learnt):
                labels = as_csr(task.documents.labels[:, learnt])
                clusters[learnt - known] = nearest_clusters(
                    fresh.routed[number], labels, ranker.tree
                )
            if texts is not None:
                each = as_csr(sparse.eye_array(len(silent), dtype=np.float32))
                clusters[silent - known] = nearest_clusters(texts.routed[number], each, ranker.tree)
            tree = with_labels(ranker.tree, clusters)
            growing = _Growing(model, view, task, ranker, tree, number)
            columns = []
            if texts is not None:
                columns.append(from_own_text(ranker, tree, silent, texts.features))
            if fresh is not None and task.documents is not None:
                examples = growing.examples(fresh, task.documents.labels)
                if old is not None and task.old is not None:
                    examples = joined(growing.examples(old, task.old.labels), examples)
                columns += growing.trained(examples, learnt, changed)
            rankers.append(
                with_columns(ranker, tree, Columns.joined(columns)) if columns else ranker
            )
            stage.advance()
    unreached = None
    if fresh is not None and task.documents is not None:
        unreached = _unreached(fresh, as_csr(task.documents.labels[:, :known]), view.rankers)
    growth = reported(
        model,
        task,
        unreached=unreached,
        unknown_names=unknown_names,
        leaf=max(int(np.diff(r.tree.children(len(r.tree.parents) - 1)).max()) for r in rankers),
        leaf_size=view.leaf_size,
    )
    return view.replaced(rankers), growth


@dataclass(frozen=True)
class _Growing:
    """One ranker of a model, with the tree that already has the new labels."""

    model: Fitted
    view: GrowthView
    task: Task
    ranker: Ranker
    tree: LabelTree
    number: int

    def examples(self, read: Read, labels: CSR) -> GrowthExamples:
        all_labels = widened(labels, self.tree.labels)
        return GrowthExamples(read.features, all_labels, read.routed[self.number], read.mined)

    def solved(
        self, examples: GrowthExamples, labels: Int64, start: Columns | None = None
    ) -> Columns:
        seed = self.model.random_state
        params, frequencies = self.view.params, None
        if params.label_weights == "propensity":
            facts = grown_facts(self.model.facts_, self.task.index, self.task.documents)
            frequencies = Frequencies(facts.frequencies, facts.documents)
        return solve_columns(
            self.tree, examples, labels, params, frequencies=frequencies, start=start, seed=seed
        )

    def trained(self, examples: GrowthExamples, learnt: Int64, changed: Int64) -> list[Columns]:
        """Weights of the labels that have documents."""
        if self.task.complete(self.model.facts_):
            labels = np.concatenate([learnt, changed])
            return [self.solved(examples, labels)] if len(labels) else []
        columns = []
        if len(changed):
            start = leaf_columns(self.ranker, changed)
            moved = self.solved(examples, changed, start)
            if self.task.old is None:  # positives alone would raise biases again and again
                moved = replace(moved, bias=np.minimum(moved.bias, start.bias))
            columns.append(moved)
        if len(learnt):
            from_few = self.task.old is None
            columns.append((self.from_few if from_few else self.solved)(examples, learnt))
        return columns

    def from_few(self, examples: GrowthExamples, learnt: Int64) -> Columns:
        """New labels, with documents made up from the model in place of old documents."""
        clusters = self.tree.parents[-1][self.tree.leaf_positions[learnt]]
        if self.ranker.features:
            frequencies = self.model.facts_.frequencies
            examples = joined(examples, stand_ins(self.ranker, np.unique(clusters), frequencies))
        columns = self.solved(examples, learnt)
        if not self.ranker.bias:
            return columns
        # Labels with too few negatives are predicted too often, so their bias stays below that of
        # their siblings.
        usual = sibling_bias(self.ranker, self.tree.parents[-1][columns.nodes])
        caution = np.float32(self.task.params.caution / self.ranker.bias)
        return replace(columns, bias=np.minimum(columns.bias, usual) - caution)


def _label_texts(model: Fitted, view: GrowthView, index: LabelIndex, columns: Int64) -> Read:
    """The labels' own texts, read as documents."""
    if not view.reads_names:
        raise DataError(
            "labels without documents need a model that reads only text; give their documents"
        )
    strings = index.words
    read = view.read([strings[column] for column in columns])
    if read.features.sparse is not None and read.features.dense is None:
        # A text without a known term leads to no cluster.
        empty = np.diff(read.features.sparse.indptr) == 0
        for routed in read.routed:
            routed.clusters[empty] = -1
        return read
    assert read.features.dense is not None
    # The mean of text vectors is large and says nothing about a label.
    known = len(model.index_)
    sample = np.unique(np.linspace(0, known - 1, min(known, SAMPLED_NAMES)).astype(int))
    others = view.read([strings[column] for column in sample]).features.dense
    assert others is not None
    dense = np.asarray(read.features.dense, np.float32)
    dense = dense - np.asarray(others, np.float32).mean(axis=0)
    return replace(read, features=Features(read.features.sparse, dense))


def _unreached(read: Read, labels: CSR, rankers: list[Ranker]) -> float | None:
    """Share of the labels whose cluster the search does not find, averaged over the trees."""
    if labels.nnz == 0:
        return None
    rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
    shares = []
    for ranker, routed in zip(rankers, read.routed, strict=True):
        needed = np.zeros(labels.nnz, np.int32)
        if len(ranker.tree.parents) > 1:
            needed = ranker.tree.parents[-1][ranker.tree.leaf_positions[labels.indices]]
        shares.append(1 - (routed.clusters[rows] == needed[:, None]).any(axis=1).mean())
    return float(np.mean(shares))
