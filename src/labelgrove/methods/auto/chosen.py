"""A model that answers through another one, as the method that chooses does once it has chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from labelgrove.core.part import Part
from labelgrove.data.features import Features
from labelgrove.evaluation.predictions import Predictions, ScoreKind, check_fitted
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods import load_folder
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.explaining.explanation import Paths, Question
from labelgrove.methods.interface import Model, Pieces
from labelgrove.methods.updating import update as updating
from labelgrove.methods.updating.report import Growth
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.ranking.ranker import Ranker

# What a fitted model knows about itself, the same for Auto and for what it has chosen.
_SHARED = (
    "index_",
    "facts_",
    "vectorizer_",
    "calibration_",
    "dev_metrics_",
    "report_",
    "story_",
    "timings_",
    "created_",
    "derived_",
    "tried_",
)


class Chosen(Estimator):
    """All that a fitted model is asked, answered by ``chosen_``, which is also what is saved."""

    chosen_: Model

    def _become(self, chosen: Model) -> None:
        self.chosen_ = chosen
        for name in _SHARED:
            setattr(self, name, getattr(chosen, name))

    def trained_config(self) -> dict[str, Any]:
        """Of the chosen model."""
        return self.chosen_.trained_config()

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the chosen model, which is then loaded as what it is."""
        check_fitted(self)
        chosen = self.chosen_
        for name in _SHARED:
            setattr(chosen, name, getattr(self, name))
        chosen.save(path, overwrite=overwrite)

    def encoders(self) -> list[EncoderParams]:
        """Those of the chosen model."""
        return self.chosen_.encoders() if self.fitted else []

    @property
    def score_kind(self) -> ScoreKind | None:
        """Of the chosen model."""
        return self.chosen_.score_kind if self.fitted else None

    def rankers(self) -> list[Ranker]:
        """Of the chosen model."""
        return self.chosen_.rankers()

    def trees(self) -> dict[str, LabelTree]:
        """Of the chosen model."""
        return self.chosen_.trees()

    def read(self, X: Any, *, dense: Any = None, threads: int | None = None) -> Features:
        """As the chosen model reads them."""
        return self.chosen_.read(X, dense=dense, threads=threads)

    def paths(self, question: Question) -> Paths:
        """Of the chosen model."""
        return self.chosen_.paths(question)

    def pieces(self) -> Pieces:
        """Of the chosen model."""
        return self.chosen_.pieces()

    def add_labels(self, names: Sequence[str], **options: Any) -> Growth:
        """Adds them to the chosen model."""
        growth = updating.add_labels(self.chosen_, names, **options)
        self._become(self.chosen_)
        return growth

    def update(self, X: Any, y: Any = None, **options: Any) -> Growth:
        """Updates the chosen model; it stays the chosen one."""
        growth = updating.update(self.chosen_, X, y, **options)
        self._become(self.chosen_)
        return growth

    def parts(self) -> dict[str, Part]:
        """Of the chosen model."""
        return self.chosen_.parts()

    def _best_labels(
        self, X: Any, k: int, *, dense: Any, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        return self.chosen_._best_labels(X, k, dense=dense, mask=mask, threads=threads)

    def _label_scores(self, X: Any, labels: Any, *, dense: Any, threads: int | None) -> Any:
        return self.chosen_._label_scores(X, labels, dense=dense, threads=threads)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads what :meth:`save` wrote; ``labelgrove.load`` gives the chosen model itself."""
        model = cls()
        model._become(load_folder(path, **options))
        return model
