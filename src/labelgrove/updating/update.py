"""New labels and new documents for a trained model, without training it from scratch.

Everything is worked out beside the model and put into it at the end: an error on the way, or an
interrupt, leaves the model as it was. Arrays that a model folder maps into memory are never
written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy import sparse

from labelgrove.core.arrays import CSR, Int64, as_csr
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.data.inputs import training_corpus
from labelgrove.errors import DataError
from labelgrove.model.growth import GrowthView, Read
from labelgrove.model.interface import Model
from labelgrove.ranking.growing import (
    Examples,
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
from labelgrove.ranking.weights import Columns
from labelgrove.scores.predictor import check_fitted
from labelgrove.updating.records import Change, extended_index, grown_calibration, grown_facts
from labelgrove.updating.report import Growth, GrowthParams, rebuild_reasons, unknown_terms

SAMPLED_NAMES = 200  # of labels, whose middle is taken off the vectors of labels' texts


def update(
    model: Model,
    X: Any,
    y: Any = None,
    *,
    dense: Any = None,
    index: LabelIndex | None = None,
    corpus: Any = None,
    params: GrowthParams | None = None,
    callbacks: Sequence[Callback] = (),
) -> Growth:
    """Learns from new documents; see the methods' ``update``."""
    check_fitted(model)
    params = (params or GrowthParams()).validate("growth")
    documents = training_corpus(X, y, index, dense=dense)
    known: LabelIndex = model.index_
    occurring = np.unique(documents.labels.indices)
    new = [c for c in occurring.tolist() if known.get(documents.index.ids[c]) is None]
    own = documents.index
    grown = extended_index(
        known,
        [own.ids[c] for c in new],
        names=None if own.names is own.ids else [own.names[c] for c in new],
        texts=None if own.texts is None else [own.texts[c] for c in new],
    )
    return _grow(model, grown, documents.reindex(grown), _old(corpus, grown), params, callbacks)


def add_labels(
    model: Model,
    names: Sequence[str],
    *,
    ids: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
    documents: Sequence[Sequence[str]] | None = None,
    corpus: Any = None,
    params: GrowthParams | None = None,
    callbacks: Sequence[Callback] = (),
) -> Growth:
    """Adds labels, by their texts or by documents; see the methods' ``add_labels``."""
    check_fitted(model)
    params = replace((params or GrowthParams()).validate("growth"), retrain="new")
    for what, values in (("names", names), ("ids", ids), ("texts", texts)):
        if isinstance(values, str):
            raise DataError(f"{what}: must be a list, even for one label: [{values!r}]")
        if values is not None and len(values) != len(names):
            raise DataError(f"{len(names)} names of new labels but {len(values)} {what}")
    own = list(names if ids is None else ids)
    known: LabelIndex = model.index_
    for label in own:
        if known.get(label) is not None:
            raise DataError(f"the label {label!r} is there already; update() trains it anew")
    grown = extended_index(known, own, names=None if ids is None else list(names), texts=texts)
    bearing = None
    if documents is not None:
        if len(documents) != len(own):
            raise DataError(
                f"documents: must be a list of texts for each of {len(own)} labels, "
                f"got {len(documents)}"
            )
        labels_of: dict[str, list[str]] = {}
        for label, its_texts in zip(own, documents, strict=True):
            if isinstance(its_texts, str):
                raise DataError(f"documents of {label!r} are one string; give a list of texts")
            for text in its_texts:
                labels_of.setdefault(text, []).append(label)
        if labels_of:
            bearing = Corpus.from_lists(list(labels_of), list(labels_of.values()), index=grown)
    return _grow(model, grown, bearing, _old(corpus, grown), params, callbacks)


@dataclass(frozen=True)
class _Task:
    """What is to be done, the same for every member of an ensemble."""

    index: LabelIndex
    documents: Corpus | None
    old: Corpus | None
    params: GrowthParams
    reporter: Reporter

    def complete(self, model: Model) -> bool:
        """Whether all documents that the model learnt from are here."""
        return self.old is not None and len(self.old) >= model.facts_.documents

    def changed(self, known: int) -> Int64:
        """Old label columns that are trained, besides the new ones."""
        if self.documents is None or self.params.retrain == "new":
            return np.zeros(0, np.int64)
        columns = np.unique(self.documents.labels.indices).astype(np.int64)
        return columns[columns < known]


def _grow(
    model: Model,
    index: LabelIndex,
    documents: Corpus | None,
    old: Corpus | None,
    params: GrowthParams,
    callbacks: Sequence[Callback],
) -> Growth:
    for single in _singles(model):
        single.growth()  # refuses before any work is done
    task = _Task(index, documents, old, params, Reporter(callbacks))
    changes, growth = _planned(model, task)
    for owner, attributes in changes:  # nothing can fail from here on
        owner.__dict__.update(attributes)
    return growth


def _singles(model: Model) -> list[Model]:
    """The models that an ensemble, or an ensemble of ensembles, is made of."""
    if not model.submodels():
        return [model]
    return [single for member in model.submodels() for single in _singles(member)]


def _planned(model: Model, task: _Task) -> tuple[list[Change], Growth]:
    """What must be set in the model and its members, and the report."""
    if model.submodels():
        parts = [_planned(member, task) for member in model.submodels()]
        changes = [change for part, _ in parts for change in part]
        reasons = dict.fromkeys(reason for _, growth in parts for reason in growth.reasons)
        growth = replace(parts[0][1], reasons=tuple(reasons))
        attributes: dict[str, Any] = {}
    else:
        attributes, growth = _grown_member(model, model.growth(), task)
        changes = []
    attributes["index_"] = task.index
    attributes["dev_metrics_"] = None
    attributes["facts_"] = grown_facts(model.facts_, task.index, task.documents)
    if model.calibration_ is not None:
        attributes["calibration_"] = grown_calibration(model, attributes, changes)
    return [*changes, (model, attributes)], growth


def _grown_member(model: Model, view: GrowthView, task: _Task) -> tuple[dict[str, Any], Growth]:
    known = len(model.index_)
    new = np.arange(known, len(task.index))
    changed = task.changed(known)
    borne = np.zeros(len(task.index), np.int64)
    if task.documents is not None:
        borne = np.bincount(task.documents.labels.indices, minlength=len(task.index))
    learnt, silent = new[borne[new] > 0], new[borne[new] == 0]
    threads = model.n_jobs
    mute = 0
    with task.reporter.stage("read"):
        fresh = None if task.documents is None else view.read(task.documents, threads)
        old = None if task.old is None else view.read(task.old, threads)
        texts = None if len(silent) == 0 else _label_texts(model, view, task.index, silent)
        if texts is not None and texts.features.sparse is not None and not texts.features.width:
            mute = int((np.diff(texts.features.sparse.indptr) == 0).sum())
    rankers = []
    with task.reporter.stage("train", total=len(view.rankers)) as stage:
        for number, ranker in enumerate(view.rankers):
            clusters = np.zeros(len(new), np.int32)
            if fresh is not None and task.documents is not None and len(learnt):
                bearers = as_csr(task.documents.labels[:, learnt])
                routed = fresh.routed[number]
                clusters[learnt - known] = nearest_clusters(routed, bearers, ranker.tree)
            if texts is not None:
                each = as_csr(sparse.eye_array(len(silent), dtype=np.float32))
                clusters[silent - known] = nearest_clusters(texts.routed[number], each, ranker.tree)
            placed = _Placed(ranker, with_labels(ranker.tree, clusters), number, threads)
            columns = []
            if texts is not None:
                columns.append(from_own_text(ranker, placed.tree, silent, texts.features))
            if fresh is not None and task.documents is not None:
                examples = placed.examples(fresh, task.documents.labels)
                if old is not None and task.old is not None:
                    examples = joined(placed.examples(old, task.old.labels), examples)
                columns += placed.trained(model, view, task, examples, learnt, changed)
            if columns:
                ranker = with_columns(ranker, placed.tree, Columns.joined(columns))
            rankers.append(ranker)
            stage.advance()
    unreached = None
    if fresh is not None and task.documents is not None:
        unreached = _unreached(fresh, task.documents.labels[:, :known], view.rankers)
    return view.replaced(rankers), _report(
        model, view, task, rankers, new=new, changed=changed, unreached=unreached, mute=mute
    )


@dataclass(frozen=True)
class _Placed:
    """One ranker with the tree that has the new labels already."""

    ranker: Ranker
    tree: Any
    number: int
    threads: int | None

    def examples(self, read: Read, labels: CSR) -> Examples:
        wide = widened(labels, self.tree.labels)
        return Examples(read.features, wide, read.routed[self.number], read.mined)

    def trained(
        self,
        model: Model,
        view: GrowthView,
        task: _Task,
        examples: Examples,
        learnt: Int64,
        changed: Int64,
    ) -> list[Columns]:
        """Weights of the labels that have documents."""
        options: dict[str, Any] = {"seed": model.random_state, "threads": self.threads}
        if task.complete(model):
            both = np.concatenate([learnt, changed])
            if len(both) == 0:
                return []
            return [solve_columns(self.tree, examples, both, view.params, **options)]
        columns = []
        if len(changed):
            start = leaf_columns(self.ranker, changed)
            found = solve_columns(self.tree, examples, changed, view.params, start=start, **options)
            if task.old is None:  # positives alone would have labels ask for less and less
                found = replace(found, bias=np.minimum(found.bias, start.bias))
            columns.append(found)
        if len(learnt):
            if task.old is None:
                columns.append(self.from_few(model, view, task, examples, learnt, options))
            else:
                columns.append(solve_columns(self.tree, examples, learnt, view.params, **options))
        return columns

    def from_few(
        self,
        model: Model,
        view: GrowthView,
        task: _Task,
        examples: Examples,
        learnt: Int64,
        options: dict[str, Any],
    ) -> Columns:
        """New labels with what the model remembers in place of old documents."""
        clusters = self.tree.parents[-1][self.tree.leaf_positions[learnt]]
        if self.ranker.features:
            remembered = stand_ins(self.ranker, np.unique(clusters), model.facts_.frequencies)
            examples = joined(examples, remembered)
        found = solve_columns(self.tree, examples, learnt, view.params, **options)
        if not self.ranker.bias:
            return found
        # Too few negatives make a label bold: no bias above that of its siblings, and a bit less.
        usual = sibling_bias(self.ranker, self.tree.parents[-1][found.nodes])
        lower = np.float32(task.params.caution / self.ranker.bias)
        return replace(found, bias=np.minimum(found.bias, usual) - lower)


def _old(corpus: Any, index: LabelIndex) -> Corpus | None:
    """The documents that a model was trained on, over the grown index."""
    if corpus is None:
        return None
    if not isinstance(corpus, Corpus):
        if not isinstance(corpus, tuple) or len(corpus) != 2:
            raise DataError("corpus: must be a Corpus, or a pair (texts, labels)")
        corpus = training_corpus(*corpus)
    return cast(Corpus, corpus).reindex(index)


def _label_texts(model: Model, view: GrowthView, index: LabelIndex, columns: Int64) -> Read:
    """The labels' own texts as if they were documents."""
    if not view.reads_names:
        raise DataError(
            "labels without documents need a model that reads texts alone; give their documents"
        )
    strings = index.names if index.texts is None else index.texts
    read = view.read([strings[column] for column in columns], model.n_jobs)
    if read.features.sparse is not None and read.features.dense is None:
        # Without a known term there is no way to a cluster.
        empty = np.diff(read.features.sparse.indptr) == 0
        for routed in read.routed:
            routed.clusters[empty] = -1
        return read
    assert read.features.dense is not None
    # Vectors of texts have much in common, which tells labels apart from nothing.
    known = len(model.index_)
    some = np.unique(np.linspace(0, known - 1, min(known, SAMPLED_NAMES)).astype(int))
    others = view.read([strings[column] for column in some], model.n_jobs).features.dense
    assert others is not None
    middle = np.asarray(others, np.float32).mean(axis=0)
    dense = np.asarray(read.features.dense, np.float32) - middle
    return replace(read, features=Features(read.features.sparse, dense))


def _unreached(read: Read, labels: CSR, rankers: list[Ranker]) -> float | None:
    """Share of the labels whose cluster is not among those found, on average over the trees."""
    labels = as_csr(labels)
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


def _report(
    model: Model,
    view: GrowthView,
    task: _Task,
    rankers: list[Ranker],
    *,
    new: Int64,
    changed: Int64,
    unreached: float | None,
    mute: int,
) -> Growth:
    texts = None if task.documents is None else task.documents.texts
    unknown = None
    if model.vectorizer_ is not None and texts is not None:
        unknown = unknown_terms(model.vectorizer_, texts)
    grown = model.facts_.grown + len(new)
    notes = []
    if task.documents is not None and not task.complete(model):
        have = 0 if task.old is None else len(task.old)
        notes.append(
            f"{have:,} of the {model.facts_.documents:,} documents that the model learnt from were "
            "at hand: "
            + (
                "labels known before were moved, not trained anew"
                if len(changed)
                else "new labels had few documents to differ from"
            )
            + "; corpus (--corpus) with all of them does more"
        )
    if mute:
        notes.append(
            f"{mute:,} labels without documents have no term that tf-idf knows: documents must "
            "teach them before they are found"
        )
    if model.calibration_ is not None:
        notes.append("probabilities and thresholds are those from before: calibrate again")
    largest = max(int(np.diff(r.tree.children(len(r.tree.parents) - 1)).max()) for r in rankers)
    return Growth(
        added=tuple(task.index.ids[column] for column in new),
        retrained=tuple(task.index.ids[column] for column in changed),
        documents=0 if task.documents is None else len(task.documents),
        unknown_terms=unknown,
        unreached=unreached,
        reasons=rebuild_reasons(
            task.params,
            added=grown / max(1, len(task.index) - grown),
            leaf=largest,
            leaf_size=view.leaf_size,
            unknown_terms=unknown,
        ),
        notes=tuple(notes),
    )
