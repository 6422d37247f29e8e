"""The result of growing a model, when to train it from scratch instead, and its parts.

The label index, trees, facts and the calibration grow in the same way for all methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from labelgrove.core.aliases import Table, TableView
from labelgrove.core.callbacks import Reporter
from labelgrove.core.nfc import nfc
from labelgrove.core.params import Params, param
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.features import Features
from labelgrove.errors import DataError
from labelgrove.evaluation.calibration import Calibration
from labelgrove.evaluation.metrics.ranking import frequency_bin
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.fitted import Fitted
from labelgrove.methods.updating.growth import Additions, Read
from labelgrove.ranking.beam import SearchParams, beam_per_level
from labelgrove.ranking.growing import route, with_labels
from labelgrove.ranking.negatives import nodes_to_mine
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams

UNKNOWN = "names or documents have no word that tf-idf knows"


@dataclass
class GrowthParams(Params):
    """How a model grows, and the limits beyond which a rebuild is due."""

    retrain: Literal["occurring", "new"] = param(
        "occurring", help="labels to train: all in the new documents, or only new ones"
    )
    caution: float = param(
        0.05,
        ge=0,
        help="subtracted from the margins of new labels without old documents, because labels with "
        "too few negatives are predicted too often",
    )
    max_added: float = param(
        0.2, ge=0, help="most labels added since training, as a share of those trained"
    )
    max_leaf: float = param(
        4.0, ge=1, help="labels of the largest cluster, in units of tree.max_leaf_size"
    )


def growth_params(given: GrowthParams | TableView | None) -> GrowthParams:
    """As they are, or from a table; checked."""
    if isinstance(given, GrowthParams):
        return given.validate("growth")
    return GrowthParams.from_dict(given or {}, "growth")


@dataclass(frozen=True)
class Growth:
    """What changed in a model, with the reasons to train it from scratch, if any.

    >>> print(Growth(added=("cats",), retrained=("dogs",), documents=3))
    3 documents: 1 label added, 1 retrained
    """

    added: tuple[str, ...] = ()
    retrained: tuple[str, ...] = ()
    documents: int = 0
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def rebuild_due(self) -> bool:
        """Whether the model should be trained from scratch."""
        return bool(self.reasons)

    def joined(self, later: Growth) -> Growth:
        """One report for two steps, with the limits that are exceeded at the end."""
        if not later.added:
            return self
        return replace(
            self,
            added=self.added + later.added,
            reasons=later.reasons,  # which has every reason of this one
            notes=tuple(dict.fromkeys([*self.notes, *later.notes])),
        )

    def to_json(self) -> Table:
        """One flat object."""
        fields = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        lists = {name: fields.pop(name) for name in ("reasons", "notes")}
        return fields | {"rebuild_due": self.rebuild_due} | lists

    def __str__(self) -> str:
        documents = f"{self.documents:,} document{'s' * (self.documents != 1)}"
        added = f"{len(self.added):,} label{'s' * (len(self.added) != 1)} added"
        return f"{documents}: {added}, {len(self.retrained):,} retrained"


@dataclass(frozen=True)
class UpdateTask(Additions):
    """The same for every member of an ensemble."""

    params: GrowthParams
    reporter: Reporter


def reported(
    model: Fitted, task: UpdateTask, *, unknown_names: int = 0, leaf: int = 0, leaf_size: int = 0
) -> Growth:
    """What changes in a model that is not an ensemble; ``leaf`` is its largest cluster."""
    known = len(model.index_)
    new, changed = range(known, len(task.index)), task.changed(known).tolist()
    grown = model.facts_.grown + len(new)
    notes = []
    if task.documents is not None and not task.complete(model.facts_):
        count = 0 if task.old is None else len(task.old)
        moved = "old labels were adjusted, not retrained"
        effect = moved if changed else "new labels had few negative documents"
        notes.append(
            f"{count:,} of the {model.facts_.documents:,} training documents were given: {effect}; "
            "give all of them as corpus (--train) for better labels"
        )
    if unknown_names:
        notes.append(
            f"new labels that cannot be predicted until documents teach them: {unknown_names:,}; "
            f"their {UNKNOWN}"
        )
    if model.calibration_ is not None:
        notes.append("the calibration is the old one: calibrate again")
    return Growth(
        added=tuple(task.index.ids[column] for column in new),
        retrained=tuple(task.index.ids[column] for column in changed),
        documents=0 if task.documents is None else len(task.documents),
        reasons=rebuild_reasons(
            task.params,
            added=grown / max(1, len(task.index) - grown),
            leaf=leaf,
            leaf_size=leaf_size,
        ),
        notes=tuple(notes),
    )


def rebuild_reasons(
    params: GrowthParams, *, added: float, leaf: int, leaf_size: int
) -> tuple[str, ...]:
    """A sentence for every limit that is exceeded."""
    limits = {
        f"{100 * added:.1f} % more labels than were trained together "
        f"(max_added {100 * params.max_added:.1f} %)": added > params.max_added,
        f"a cluster has {leaf:,} labels, and the tree was grown for {leaf_size:,} "
        f"(max_leaf {params.max_leaf:g} times)": leaf > params.max_leaf * leaf_size,
    }
    return tuple(reason for reason, exceeded in limits.items() if exceeded)


Change = tuple[Fitted, Table]  # a model and the attributes to set


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
    names: Sequence[str] | None,
    texts: Sequence[str] | None,
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


def grown_calibration(model: Fitted, attributes: Table) -> Calibration:
    """A calibration with room for new labels; ``attributes`` are to be set."""
    calibration = model.calibration_
    assert calibration is not None
    known, labels = len(model.index_), len(attributes["index_"])
    groups, thresholds = calibration.groups, calibration.label_thresholds
    if groups is not None:
        later = np.full(labels - known, -1, np.int32)  # the common curve
        if calibration.by == "frequency":
            later[:] = frequency_bin(attributes["facts_"].frequencies[known:])
        groups = np.concatenate([groups, later])
    if thresholds is not None:
        thresholds = np.concatenate([thresholds, np.full(labels - known, np.nan, np.float32)])
    return replace(calibration, groups=groups, label_thresholds=thresholds)
