"""New labels and new documents for a trained model, without training it from scratch.

All new parts are computed first and set in the model at the end. An error or an interrupt on the
way leaves the model as it was. Arrays that a model folder maps into memory are never written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.resources import with_own_resources
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.inputs import training_corpus
from labelgrove.errors import DataError
from labelgrove.evaluation.predictions import check_fitted
from labelgrove.methods.fitted import Fitted
from labelgrove.methods.updating.growth import OwnGrowth
from labelgrove.methods.updating.rankers import grown_rankers
from labelgrove.methods.updating.report import Growth, GrowthParams, Task, reported
from labelgrove.methods.updating.views import Change, extended_index, grown_calibration, grown_facts


def update(
    model: Fitted,
    X: Any,
    y: Any = None,
    *,
    dense: Any = None,
    index: LabelIndex | None = None,
    corpus: Any = None,
    rejected: Sequence[str] = (),
    params: GrowthParams | None = None,
    callbacks: Sequence[Callback] = (),
) -> Growth:
    """Learns from new documents; see the methods' ``update``."""
    check_fitted(model)
    params = (params or GrowthParams()).validate("growth")
    X = model.documents(X)
    documents = training_corpus(X, y, index, dense=dense)
    own, columns = documents.index, np.unique(documents.labels.indices).tolist()
    new = [c for c in columns if model.index_.get(own.ids[c]) is None]
    grown = extended_index(
        model.index_,
        [own.ids[c] for c in new],
        names=None if own.names is own.ids else [own.names[c] for c in new],
        texts=None if own.texts is None else [own.texts[c] for c in new],
    )
    columns = [grown.get(label) for label in rejected]
    refused = tuple(column for column in columns if column is not None)
    new_documents, old = documents.reindex(grown), _old(corpus, grown)
    return _grow(model, grown, new_documents, old, params, callbacks, refused)


def add_labels(
    model: Fitted,
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
    grown = extended_index(model.index_, labels, names=all_names, texts=texts)
    new = None if documents is None else _documents_of(labels, documents, grown)
    return _grow(model, grown, new, _old(corpus, grown), params, callbacks)


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


def _grow(
    model: Fitted,
    index: LabelIndex,
    documents: Corpus | None,
    old: Corpus | None,
    params: GrowthParams,
    callbacks: Sequence[Callback],
    rejected: tuple[int, ...] = (),
) -> Growth:
    for single in _singles(model):
        single.growth()  # fails early if it is not supported
    only_new = params.retrain == "new"
    task = Task(index, documents, old, only_new, params, Reporter(callbacks), rejected)
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
def _planned(model: Fitted, task: Task) -> tuple[list[Change], Growth]:
    """What must be set in the model and its members, and the report."""
    view = model.growth()
    if model.submodels():
        parts = [_planned(member, task) for member in model.submodels()]
        changes = [change for part, _ in parts for change in part]
        reasons = dict.fromkeys(reason for _, growth in parts for reason in growth.reasons)
        growth = replace(parts[0][1], reasons=tuple(reasons))
        assert isinstance(view, OwnGrowth)
        attributes = view.grown(task)
    elif isinstance(view, OwnGrowth):
        with task.reporter.stage("count"):
            attributes = view.grown(task)
        changes, growth = [], reported(model, task)
    else:
        attributes, growth = grown_rankers(model, view, task)
        changes = []
    attributes["index_"] = task.index
    attributes["dev_metrics_"] = None
    attributes["facts_"] = grown_facts(model.facts_, task.index, task.documents)
    if model.calibration_ is not None:
        attributes["calibration_"] = grown_calibration(model, attributes, changes)
    return [*changes, (model, attributes)], growth


def _old(corpus: Any, index: LabelIndex) -> Corpus | None:
    """The training documents of a model, over the grown index."""
    if corpus is None:
        return None
    if not isinstance(corpus, Corpus):
        if not isinstance(corpus, tuple) or len(corpus) != 2:
            raise DataError("corpus: must be a Corpus, or a pair (texts, labels)")
        corpus = training_corpus(*corpus)
    return cast(Corpus, corpus).reindex(index)
