"""What methods share that predict by going down label trees, with a linear ranker for each tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from labelgrove.core.aliases import DenseInput, DocumentInput, Table
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import Features
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import TreeParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker, search_trees
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams

if TYPE_CHECKING:  # what a prediction does without is imported where it is used
    from labelgrove.methods.cost_estimate import CostEstimate
    from labelgrove.methods.updating.growth import GrowthView, Read


class TreeSearch(Protocol):
    """A method with these settings, and a ranker per tree."""

    tfidf: TfidfParams
    tree: TreeParams
    ranker: RankerParams
    search: SearchParams
    index_: LabelIndex
    rankers_: list[Ranker]

    def read(self, X: DocumentInput, *, dense: DenseInput = None) -> Features: ...


def search_labels(
    model: TreeSearch, documents: DocumentInput, k: int, *, mask: LabelMask | None
) -> Predictions:
    """The k best labels of documents as the rankers read them."""
    best = search_trees(model.rankers_, documents, k=k, params=model.search, allow=mask)
    return Predictions(*best, model.index_, model.search.score_kind)


def best_labels(
    self: TreeSearch, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
) -> Predictions:
    """The k best labels of documents."""
    return search_labels(self, self.read(X, dense=dense), k, mask=mask)


def tree_growth(
    model: TreeSearch,
    leaf_size: int,
    replaced: Callable[[list[Ranker]], Table] = lambda rankers: {"rankers_": rankers},
    *,
    reads_names: bool,
) -> GrowthView:
    """A view of the model in which labels get a place in each tree."""
    from labelgrove.methods.updating.growth import GrowthView
    from labelgrove.methods.updating.report import routed_documents

    def read(documents: DocumentInput) -> Read:
        features = model.read(documents)
        return routed_documents(features, model.rankers_, model.ranker, model.search)

    return GrowthView(model.rankers_, model.ranker, leaf_size, read, replaced, reads_names)


def tree_cost_estimate(model: TreeSearch, labels: int, *, trees: int = 1) -> CostEstimate:
    """tf-idf, trees and rankers."""
    from labelgrove.methods.cost_estimate import CostEstimate, expected_widths

    widths = expected_widths(model.tree, labels)
    return CostEstimate(
        model.tfidf, model.tree, model.ranker, widths, search=model.search, trees=trees
    )
