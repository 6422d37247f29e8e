"""What growing a model did, and when it is time to train it from scratch instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from labelgrove.core.params import Params, param
from labelgrove.errors import DataError

if TYPE_CHECKING:
    from labelgrove.text.tfidf import Tfidf

SAMPLED_TEXTS = 1000  # that say how many terms are unknown


@dataclass
class GrowthParams(Params):
    """How a model grows, and from when on a rebuild is due."""

    retrain: Literal["occurring", "new"] = param(
        "occurring",
        help="labels that are trained: all that occur in the new documents, or new ones alone",
    )
    caution: float = param(
        0.05,
        ge=0,
        help="taken off the margins of new labels where old documents are not at hand, because "
        "too few negatives make labels bold",
    )
    max_added: float = param(
        0.2, ge=0, help="labels added since training, as a share of those trained, without rebuild"
    )
    max_leaf: float = param(
        4.0, ge=1, help="labels of the largest cluster, in units of tree.max_leaf_size"
    )
    max_unknown_terms: float = param(
        0.3, ge=0, le=1, help="share of the new documents' terms that the vocabulary does not know"
    )


@dataclass(frozen=True)
class Growth:
    """What was done to a model, with what speaks for training it from scratch.

    ``unknown_terms`` is the share of the new documents' terms that tf-idf does not know,
    ``unreached`` the share of their labels (of those known before) whose cluster the search does
    not get to; None where there was nothing to measure.

    >>> print(Growth(added=("cats",), retrained=("dogs",), documents=3))
    3 documents: 1 label added, 1 trained anew
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

    def to_json(self) -> dict[str, Any]:
        """One flat object."""
        return {
            "added": list(self.added),
            "retrained": list(self.retrained),
            "documents": self.documents,
            "unknown_terms": self.unknown_terms,
            "unreached": self.unreached,
            "rebuild_due": self.rebuild_due,
            "reasons": list(self.reasons),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        labels = "label" if len(self.added) == 1 else "labels"
        return (
            f"{self.documents:,} documents: {len(self.added):,} {labels} added, "
            f"{len(self.retrained):,} trained anew"
        )


def rebuild_reasons(
    params: GrowthParams, *, added: float, leaf: int, leaf_size: int, unknown_terms: float | None
) -> tuple[str, ...]:
    """A sentence for every limit that is passed."""
    reasons = []
    if added > params.max_added:
        reasons.append(
            f"{added:.1%} more labels than were trained together "
            f"(max_added {params.max_added:.1%})".replace("%", " %")
        )
    if leaf > params.max_leaf * leaf_size:
        reasons.append(
            f"a cluster of {leaf:,} labels, where the tree was grown with {leaf_size:,} "
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
    everything = {"min_df": 1, "max_df": 1.0, "max_features": None}
    params = TfidfParams(**vectorizer.params.get_params() | everything)
    try:
        every = Tfidf(params, analyzer=vectorizer.analyzer).fit_transform(sample).nnz
    except DataError:  # not one term in all of them
        return None
    return 1.0 - float(vectorizer.transform(sample).nnz) / float(every)
