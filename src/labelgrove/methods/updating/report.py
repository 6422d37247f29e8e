"""The result of growing a model, and when to train it from scratch instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from labelgrove.core.aliases import Table
from labelgrove.core.arrays import Int64
from labelgrove.core.callbacks import Reporter
from labelgrove.core.params import Params, param
from labelgrove.errors import DataError
from labelgrove.methods.fitted import Fitted
from labelgrove.methods.updating.growth import Additions

if TYPE_CHECKING:
    from labelgrove.text.tfidf import Tfidf

SAMPLED_TEXTS = 1000  # texts whose terms are looked up


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
    max_unknown_terms: float = param(
        0.3, ge=0, le=1, help="largest share of unknown terms in the new documents"
    )


@dataclass(frozen=True)
class Growth:
    """What changed in a model, with the reasons to train it from scratch, if any.

    ``unknown_terms`` is the share of the new documents' terms that tf-idf does not know,
    ``unreached`` the share of their old labels whose cluster the search does not reach; None if
    there was nothing to measure.

    >>> print(Growth(added=("cats",), retrained=("dogs",), documents=3))
    3 documents: 1 label added, 1 retrained
    """

    added: tuple[str, ...] = ()
    retrained: tuple[str, ...] = ()
    documents: int = 0
    unknown_terms: float | None = None
    unreached: float | None = None
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
        # The later report has every reason of this one, except those about documents' terms.
        terms = [reason for reason in self.reasons if "max_unknown_terms" in reason]
        return replace(
            self,
            added=self.added + later.added,
            reasons=tuple(dict.fromkeys([*later.reasons, *terms])),
            notes=tuple(dict.fromkeys([*self.notes, *later.notes])),
        )

    def to_json(self) -> Table:
        """One flat object."""
        fields = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        lists = {name: fields.pop(name) for name in ("reasons", "notes")}
        return fields | {"rebuild_due": self.rebuild_due} | lists

    def __str__(self) -> str:
        labels = "label" if len(self.added) == 1 else "labels"
        return (
            f"{self.documents:,} documents: {len(self.added):,} {labels} added, "
            f"{len(self.retrained):,} retrained"
        )


@dataclass(frozen=True)
class Task(Additions):
    """The same for every member of an ensemble.

    ``rejected`` are columns of labels that people refused; those of them that old documents have
    are trained, too. Without a document that has the label there is nothing to train it with.
    """

    params: GrowthParams
    reporter: Reporter
    rejected: tuple[int, ...] = ()

    def changed(self, known: int) -> Int64:
        """Old label columns that are trained, too."""
        columns = super().changed(known)
        if not self.rejected or self.only_new or self.old is None:
            return columns
        taught = np.intersect1d(self.rejected, self.old.labels.indices)
        return np.union1d(columns, taught[taught < known]).astype(np.int64)


def reported(
    model: Fitted,
    task: Task,
    *,
    unreached: float | None = None,
    unknown_names: int = 0,
    leaf: int = 0,
    leaf_size: int = 0,
) -> Growth:
    """What changes in a model that is not an ensemble; ``leaf`` is its largest cluster."""
    known = len(model.index_)
    new, changed = range(known, len(task.index)), task.changed(known).tolist()
    texts = None if task.documents is None else task.documents.texts
    unknown = None
    if model.vectorizer_ is not None and texts is not None:
        unknown = unknown_terms(model.vectorizer_, texts)
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
            f"{unknown_names:,} labels without documents have no term that tf-idf knows; they "
            "cannot be predicted until documents teach them"
        )
    if model.calibration_ is not None:
        notes.append("the calibration is the old one: calibrate again")
    return Growth(
        added=tuple(task.index.ids[column] for column in new),
        retrained=tuple(task.index.ids[column] for column in changed),
        documents=0 if task.documents is None else len(task.documents),
        unknown_terms=unknown,
        unreached=unreached,
        reasons=rebuild_reasons(
            task.params,
            added=grown / max(1, len(task.index) - grown),
            leaf=leaf,
            leaf_size=leaf_size,
            unknown_terms=unknown,
        ),
        notes=tuple(notes),
    )


def rebuild_reasons(
    params: GrowthParams, *, added: float, leaf: int, leaf_size: int, unknown_terms: float | None
) -> tuple[str, ...]:
    """A sentence for every limit that is exceeded."""
    reasons = []
    if added > params.max_added:
        reasons.append(
            f"{100 * added:.1f} % more labels than were trained together "
            f"(max_added {100 * params.max_added:.1f} %)"
        )
    if leaf > params.max_leaf * leaf_size:
        reasons.append(
            f"a cluster has {leaf:,} labels, and the tree was grown for {leaf_size:,} "
            f"(max_leaf {params.max_leaf:g} times)"
        )
    if unknown_terms is not None and unknown_terms > params.max_unknown_terms:
        reasons.append(
            f"{100 * unknown_terms:.1f} % of the new documents' terms are unknown "
            f"(max_unknown_terms {100 * params.max_unknown_terms:.1f} %)"
        )
    return tuple(reasons)


def unknown_terms(vectorizer: Tfidf, texts: Sequence[str]) -> float | None:
    """Share of the texts' distinct terms that a vocabulary does not have, from a sample."""
    from labelgrove.text.tfidf import Tfidf, TfidfParams

    if vectorizer.params.n_buckets is not None or len(texts) == 0:
        return None
    step = -(-len(texts) // SAMPLED_TEXTS)
    sample = [texts[row] for row in range(0, len(texts), step)]
    unlimited: Table = {
        "min_df": 1,
        "max_df": 1.0,
        "max_features": None,
        "field_weights": {},
    }
    params = TfidfParams(**vectorizer.fitted_params.get_params() | unlimited)
    try:
        every = Tfidf(params, analyzer=vectorizer.analyzer).fit_transform(sample).nnz
    except DataError:  # the sample has no term at all
        return None
    return 1.0 - float(vectorizer.transform(sample).nnz) / float(every)
