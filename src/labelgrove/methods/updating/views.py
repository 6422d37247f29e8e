"""The parts of a grown model besides its weights: trees, label index, facts, calibration."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from labelgrove.core.nfc import nfc
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.features import Features
from labelgrove.errors import DataError
from labelgrove.evaluation.calibration import Calibration, label_groups
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.fitted import Fitted
from labelgrove.methods.updating.growth import Read
from labelgrove.ranking.beam import SearchParams, beam_per_level
from labelgrove.ranking.growing import route, with_labels
from labelgrove.ranking.negatives import nodes_to_mine
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams

Change = tuple[Fitted, dict[str, Any]]  # a model and the attributes to set


def routed_documents(
    features: Features, rankers: list[Ranker], params: RankerParams, search: SearchParams
) -> Read:
    """The clusters that the upper levels of each tree find, as when mining for training."""
    widths = rankers[0].tree.widths
    beam = beam_per_level(search.beam, widths[:-1] or widths)[-1]
    terms = np.inf
    if features.sparse is not None and not features.width:
        terms = features.sparse.nnz / max(1, len(features))
    mined = nodes_to_mine(params.mined_nodes, terms, beam=beam)
    most = max(mined, beam)
    routed = [route(ranker, features, search, most=most) for ranker in rankers]
    return Read(features, routed, mined)


def extended_tree(tree: LabelTree, grown: LabelTree) -> LabelTree:
    """A tree with the labels of ``grown``; new ones go where most labels of their cluster are."""
    last, clusters = len(grown.parents) - 1, []
    children = grown.children(last)
    own = tree.parents[-1][tree.leaf_positions]
    for label in range(tree.labels, grown.labels):
        parent = grown.parents[last][grown.leaf_positions[label]]
        siblings = grown.leaf_labels[children[parent] : children[parent + 1]]
        clusters.append(int(np.argmax(np.bincount(own[siblings[siblings < tree.labels]]))))
    return with_labels(tree, clusters)


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
            raise DataError(f"a new label must be a non-empty string, got {label!r}")
    ids = [nfc(label) for label in ids]
    if len(set(ids)) != len(ids):
        twice = next(label for number, label in enumerate(ids) if label in ids[:number])
        raise DataError(f"the new label {twice!r} is given twice")
    if not ids:
        return index
    new_names = list(ids if names is None else names)
    all_names = all_texts = None
    if names is not None or index.names is not index.ids:
        all_names = [*index.names, *new_names]
    if texts is not None or index.texts is not None:  # the name is the text where there is none
        all_texts = [*(index.texts or index.names), *(new_names if texts is None else texts)]
    return LabelIndex([*index.ids, *ids], names=all_names, texts=all_texts, groups=index.groups)


def grown_facts(facts: TrainingFacts, index: LabelIndex, documents: Corpus | None) -> TrainingFacts:
    """Facts that count new labels (those at the end of ``index``) and new documents."""
    new = len(index) - len(facts.frequencies)
    frequencies = np.concatenate([facts.frequencies, np.zeros(new, np.int64)])
    count, fingerprints = facts.documents, facts.fingerprints
    if documents is not None:
        frequencies = frequencies + np.bincount(documents.labels.indices, minlength=len(index))
        count += len(documents)
        if fingerprints is not None:
            fingerprints = fingerprints.with_documents(documents)
    return replace(
        facts,
        documents=count,
        frequencies=frequencies,
        grown=facts.grown + new,
        fingerprints=fingerprints,
    )


def grown_calibration(
    model: Fitted, attributes: dict[str, Any], changes: list[Change]
) -> Calibration:
    """A calibration with room for new labels; nothing changes for the others.

    ``attributes`` are those that the model will have, ``changes`` those of its members.
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


def _with(model: Fitted, attributes: dict[str, Any]) -> Fitted:
    """A shallow copy of the model with other attributes."""
    other = copy.copy(model)
    other.__dict__.update(attributes)
    return other
