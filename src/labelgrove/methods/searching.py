"""Methods that predict by going down label trees, with a linear ranker for each tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labelgrove.evaluation.predictions import Predictions, ScoreKind
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import TreeParams
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.settings import Group
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker, search_trees
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams

if TYPE_CHECKING:  # what a prediction does without is imported where it is used
    from labelgrove.methods.outline import Outline
    from labelgrove.methods.updating.growth import GrowthView, Read


class TreeSearch(Estimator):
    """Prediction, growth and plans of methods with these settings and ``rankers_``."""

    tfidf: Group[TfidfParams]
    tree: Group[TreeParams]
    ranker: Group[RankerParams]
    search: Group[SearchParams]
    n_trees: int = 1
    rankers_: list[Ranker]

    @property
    def score_kind(self) -> ScoreKind:
        """As ``search`` says."""
        return self.search.score_kind

    def rankers(self) -> list[Ranker]:
        """One per tree."""
        return self.rankers_

    def _best_labels(
        self, X: Any, k: int, *, dense: Any, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        return self._searched(self.read(X, threads=threads), k, mask=mask, threads=threads)

    def _searched(
        self, documents: Any, k: int, *, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """The k best labels of documents as the rankers read them."""
        best = search_trees(
            self.rankers_, documents, k=k, params=self.search, allow=mask, threads=threads
        )
        return Predictions(*best, self.index_, self.search.score_kind)

    def _growth(
        self,
        leaf_size: int,
        replaced: Callable[[list[Ranker]], dict[str, Any]] = lambda rankers: {"rankers_": rankers},
        *,
        reads_names: bool = True,
    ) -> GrowthView:
        """A view of the model in which labels get a place in each tree."""
        from labelgrove.methods.updating.growth import GrowthView
        from labelgrove.methods.updating.views import routed_documents

        def read(documents: Any, threads: int | None) -> Read:
            features = self.read(documents, threads=threads)
            return routed_documents(features, self.rankers_, self.ranker, self.search, threads)

        return GrowthView(self.rankers_, self.ranker, leaf_size, read, replaced, reads_names)

    def outline(self, documents: int, labels: int) -> Outline:
        """tf-idf, trees and rankers."""
        from labelgrove.methods.outline import Outline, expected_widths

        return Outline(
            self.tfidf,
            self.tree,
            self.ranker,
            expected_widths(self.tree, labels),
            search=self.search,
            trees=self.n_trees,
        )
