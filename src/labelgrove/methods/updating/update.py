"""New labels and new documents for a trained model, without training it from scratch.

All new parts are computed first and set in the model at the end. An error or an interrupt on the
way leaves the model as it was. Arrays that a model folder maps into memory are never written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from labelgrove.core.aliases import DocumentInput, LabelInput, Table
from labelgrove.core.arrays import CSR, Int64, as_csr
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.late import sparse
from labelgrove.core.resources import with_own_resources
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.data.inputs import training_corpus
from labelgrove.errors import DataError
from labelgrove.evaluation.predictions import check_fitted
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.fitted import Fitted
from labelgrove.methods.updating import report
from labelgrove.methods.updating.growth import GrowthView, OwnGrowth, Read
from labelgrove.methods.updating.report import Change, Growth, GrowthParams, UpdateTask
from labelgrove.ranking import growing
from labelgrove.ranking.growing import GrowthExamples
from labelgrove.ranking.negatives import Frequencies
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.weights import Columns


def update(
    model: Fitted,
    documents: Corpus,
    *,
    corpus: Corpus | tuple[DocumentInput, LabelInput] | None = None,
    rejected: Sequence[str] = (),
    params: GrowthParams | None = None,
    callbacks: Sequence[Callback] = (),
) -> Growth:
    """Learns from new documents; see the methods' ``update``."""
    params = report.growth_params(params)
    own, columns = documents.index, np.unique(documents.labels.indices).tolist()
    new = [c for c in columns if model.index_.get(own.ids[c]) is None]
    grown = report.extended_index(
        model.index_,
        [own.ids[c] for c in new],
        names=None if own.names is own.ids else [own.names[c] for c in new],
        texts=None if own.texts is None else [own.texts[c] for c in new],
    )
    columns = [grown.get(label) for label in rejected]
    refused = tuple(column for column in columns if column is not None)
    new_documents, old = documents.reindex(grown), _old(corpus, grown)
    only_new = params.retrain == "new"
    task = UpdateTask(grown, new_documents, old, only_new, refused, params, Reporter(callbacks))
    return _grow(model, task)


def add_labels(
    model: Fitted,
    names: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
    documents: Sequence[Sequence[str]] | None = None,
    corpus: Corpus | tuple[DocumentInput, LabelInput] | None = None,
    params: GrowthParams | None = None,
    callbacks: Sequence[Callback] = (),
) -> Growth:
    """Adds labels, by their texts or by documents; see the methods' ``add_labels``."""
    check_fitted(model)
    params = report.growth_params(params)
    for name, values in (("names", names), ("ids", ids), ("texts", texts)):
        if isinstance(values, str):
            raise DataError(f"{name}: must be a list, even for one label: [{values!r}]")
        if values is not None and len(values) != len(names):
            raise DataError(f"{len(names)} names of new labels but {len(values)} {name}")
    labels = list(names if ids is None else ids)
    for label in labels:
        if model.index_.get(label) is not None:
            raise DataError(f"the model already has the label {label!r}; update() retrains it")
    all_names = None if ids is None else list(names)
    grown = report.extended_index(model.index_, labels, names=all_names, texts=texts)
    new = None if documents is None else _documents_of(labels, documents, grown)
    task = UpdateTask(grown, new, _old(corpus, grown), True, (), params, Reporter(callbacks))
    return _grow(model, task)


def _documents_of(
    labels: list[str], documents: Sequence[Sequence[str]], index: LabelIndex
) -> Corpus | None:
    """A corpus from a list of texts per label."""
    if len(documents) != len(labels):
        raise DataError(
            f"documents: must be a list of texts for each of {len(labels)} labels, "
            f"got {len(documents)}"
        )
    labels_of: dict[str, list[str]] = {}
    for label, texts in zip(labels, documents, strict=True):
        if isinstance(texts, str):
            raise DataError(f"documents of {label!r} are one string; give a list of texts")
        for text in texts:
            labels_of.setdefault(text, []).append(label)
    if not labels_of:
        return None
    return Corpus.from_lists(list(labels_of), list(labels_of.values()), index=index)


def _grow(model: Fitted, task: UpdateTask) -> Growth:
    for single in _singles(model):
        single.growth()  # fails early if it is not supported
    changes, growth = _planned(model, task)
    for owner, attributes in changes:  # nothing can fail any more
        owner.__dict__.update(attributes)
    return growth


def _singles(model: Fitted) -> list[Fitted]:
    """The models that an ensemble, or an ensemble of ensembles, is made of."""
    if not model.submodels():
        return [model]
    return [single for member in model.submodels() for single in _singles(member)]


@with_own_resources
def _planned(model: Fitted, task: UpdateTask) -> tuple[list[Change], Growth]:
    """What must be set in the model and its members, and the report."""
    view = model.growth()
    if model.submodels():
        parts = [_planned(member, task) for member in model.submodels()]
        changes = [change for part, _ in parts for change in part]
        growths, growth = [part for _, part in parts], report.reported(model, task)
        reasons = dict.fromkeys(reason for part in growths for reason in part.reasons)
        # A label that one member cannot predict may be known to others.
        unknown = [note for note in growths[0].notes if report.UNKNOWN in note]
        notes = [note for note in unknown if all(note in part.notes for part in growths)]
        growth = replace(growth, reasons=tuple(reasons), notes=(*growth.notes, *notes))
        assert isinstance(view, OwnGrowth)
        attributes = view.grown(task)
    elif isinstance(view, OwnGrowth):
        with task.reporter.stage("count"):
            attributes = view.grown(task)
        changes, growth = [], report.reported(model, task)
    else:
        attributes, growth = grown_rankers(model, view, task)
        changes = []
    attributes["index_"] = task.index
    attributes["dev_metrics_"] = None
    attributes["facts_"] = report.grown_facts(model.facts_, task.index, task.documents)
    if model.calibration_ is not None:
        attributes["calibration_"] = report.grown_calibration(model, attributes)
    return [*changes, (model, attributes)], growth


def _old(
    corpus: Corpus | tuple[DocumentInput, LabelInput] | None, index: LabelIndex
) -> Corpus | None:
    """The training documents of a model, over the grown index."""
    if corpus is None:
        return None
    if not isinstance(corpus, Corpus):
        if not isinstance(corpus, tuple) or len(corpus) != 2:
            raise DataError("corpus: must be a Corpus, or a pair (texts, labels)")
        corpus = training_corpus(*corpus)
    return corpus.reindex(index)


SAMPLED_NAMES = 200  # labels whose mean text vector is subtracted from those of new labels


def grown_rankers(model: Fitted, view: GrowthView, task: UpdateTask) -> tuple[Table, Growth]:
    """The attributes of a model whose rankers have the new labels, and the report."""
    known = len(model.index_)
    new, changed = np.arange(known, len(task.index)), task.changed(known)
    fresh_labels = as_csr(np.zeros((0, len(task.index))))
    if task.documents is not None:
        fresh_labels = task.documents.labels
    counts = np.bincount(fresh_labels.indices, minlength=len(task.index))
    learnt, silent = new[counts[new] > 0], new[counts[new] == 0]
    unknown_names = 0
    with task.reporter.stage("read"):
        fresh = None if task.documents is None else view.read(task.documents)
        old = None if task.old is None else view.read(task.old)
        texts = None if len(silent) == 0 else _label_texts(model, view, task.index, silent)
        if texts is not None and texts.features.sparse is not None and not texts.features.width:
            unknown_names = int((np.diff(texts.features.sparse.indptr) == 0).sum())
        if fresh is not None and fresh.features.sparse is not None and not fresh.features.width:
            known_words = np.diff(fresh.features.sparse.indptr) > 0
            read = np.bincount(fresh_labels[known_words].indices, minlength=len(task.index))
            unknown_names += int((read[learnt] == 0).sum())
    rankers = []
    with task.reporter.stage("train", total=len(view.rankers)) as stage:
        for number, ranker in enumerate(view.rankers):
            clusters = np.zeros(len(new), np.int32)
            if fresh is not None and len(learnt):
                own = as_csr(fresh_labels[:, learnt])
                clusters[learnt - known] = growing.nearest_clusters(
                    fresh.routed[number], own, ranker.tree
                )
            if texts is not None:
                each = as_csr(sparse.eye_array(len(silent), dtype=np.float32))
                clusters[silent - known] = growing.nearest_clusters(
                    texts.routed[number], each, ranker.tree
                )
            tree = growing.with_labels(ranker.tree, clusters)
            one = _Growing(model, view, task, ranker, tree, number)
            columns = []
            if texts is not None:
                columns.append(growing.from_own_text(ranker, tree, silent, texts.features))
            if fresh is not None:
                examples = one.examples(fresh, fresh_labels)
                if old is not None and task.old is not None:
                    examples = growing.joined(one.examples(old, task.old.labels), examples)
                columns += one.trained(examples, learnt, changed)
            rankers.append(
                growing.with_columns(ranker, tree, Columns.joined(columns)) if columns else ranker
            )
            stage.advance()
    growth = report.reported(
        model,
        task,
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
    task: UpdateTask
    ranker: Ranker
    tree: LabelTree
    number: int

    def examples(self, read: Read, labels: CSR) -> GrowthExamples:
        all_labels = growing.widened(labels, self.tree.labels)
        return GrowthExamples(read.features, all_labels, read.routed[self.number], read.mined)

    def solved(
        self, examples: GrowthExamples, labels: Int64, start: Columns | None = None
    ) -> Columns:
        seed = self.model.random_state
        params, frequencies = self.view.params, None
        if params.label_weights == "propensity":
            facts = report.grown_facts(self.model.facts_, self.task.index, self.task.documents)
            frequencies = Frequencies(facts.frequencies, facts.documents)
        return growing.solve_columns(
            self.tree, examples, labels, params, frequencies=frequencies, start=start, seed=seed
        )

    def trained(self, examples: GrowthExamples, learnt: Int64, changed: Int64) -> list[Columns]:
        """Weights of the labels that have documents."""
        if self.task.complete(self.model.facts_):
            labels = np.concatenate([learnt, changed])
            return [self.solved(examples, labels)] if len(labels) else []
        columns = []
        if len(changed):
            start = growing.leaf_columns(self.ranker, changed)
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
            examples = growing.joined(
                examples, growing.stand_ins(self.ranker, np.unique(clusters), frequencies)
            )
        columns = self.solved(examples, learnt)
        if not self.ranker.bias:
            return columns
        # Labels with too few negatives are predicted too often, so their bias stays below that of
        # their siblings.
        usual = growing.sibling_bias(self.ranker, self.tree.parents[-1][columns.nodes])
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
