"""What is kept beside the weights when a model grows: label index, facts, calibration."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelgrove.calibrating.calibration import Calibration, label_groups
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.errors import DataError
from labelgrove.model.interface import Model

Change = tuple[Model, dict[str, Any]]  # a model and attributes that it will get


def extended_index(
    index: LabelIndex,
    ids: Sequence[str],
    *,
    names: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
) -> LabelIndex:
    """The index with more labels at its end; columns and groups stay."""
    for label in ids:
        if not isinstance(label, str) or not label:
            raise DataError(f"a new label must be a string that is not empty, got {label!r}")
    if len(set(ids)) != len(ids):
        twice = next(label for number, label in enumerate(ids) if label in ids[:number])
        raise DataError(f"the new label {twice!r} is given twice")
    if not ids:
        return index
    own_names = list(ids if names is None else names)
    all_names = None
    if names is not None or index.names is not index.ids:
        all_names = [*index.names, *own_names]
    all_texts = None
    if texts is not None or index.texts is not None:  # whoever has none is called by name
        all_texts = [*(index.texts or index.names), *(own_names if texts is None else texts)]
    return LabelIndex([*index.ids, *ids], names=all_names, texts=all_texts, groups=index.groups)


def grown_facts(facts: TrainingFacts, index: LabelIndex, documents: Corpus | None) -> TrainingFacts:
    """Facts that count new labels, all of ``index`` past those known, and new documents."""
    new = len(index) - len(facts.frequencies)
    frequencies = np.concatenate([facts.frequencies, np.zeros(new, np.int64)])
    count = facts.documents
    if documents is not None:
        frequencies = frequencies + np.bincount(documents.labels.indices, minlength=len(index))
        count += len(documents)
    return replace(facts, documents=count, frequencies=frequencies, grown=facts.grown + new)


def grown_calibration(
    model: Model, attributes: dict[str, Any], changes: list[Change]
) -> Calibration:
    """A calibration with room for new labels; what it says of others stays.

    ``attributes`` are what the model will have, ``changes`` what its members will.
    """
    calibration = model.calibration_
    assert calibration is not None
    known, labels = len(model.index_), len(attributes["index_"])
    groups, thresholds = calibration.groups, calibration.label_thresholds
    if groups is not None and labels > known:
        later = {id(owner): values for owner, values in changes}
        members = [_with(member, later[id(member)]) for member in model.submodels()]
        grown = _with(model, attributes | ({"members_": members} if members else {}))
        new_groups = label_groups(grown, calibration.by)
        assert new_groups is not None
        groups = np.concatenate([groups, new_groups[known:]])
    if thresholds is not None:
        thresholds = np.concatenate([thresholds, np.full(labels - known, np.nan, np.float32)])
    return replace(calibration, groups=groups, label_thresholds=thresholds)


def _with(model: Model, attributes: dict[str, Any]) -> Model:
    """A shallow copy of the model with other attributes."""
    other = copy.copy(model)
    other.__dict__.update(attributes)
    return other
