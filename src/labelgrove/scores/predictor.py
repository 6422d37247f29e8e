"""What scoring and calibration ask of a model, whatever its method."""

from __future__ import annotations

from typing import Any, Protocol

from labelgrove.data.corpus import LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.errors import NotFittedError
from labelgrove.labels.tree import LabelTree
from labelgrove.scores.predictions import Predictions


class Predictor(Protocol):
    """A fitted model."""

    calibration_: Any

    @property
    def method(self) -> str: ...

    @property
    def fitted(self) -> bool: ...

    @property
    def index_(self) -> LabelIndex: ...

    @property
    def facts_(self) -> TrainingFacts: ...

    def trees(self) -> dict[str, LabelTree]: ...

    def predict(self, X: Any, k: int = 5, **request: Any) -> Predictions: ...


def check_fitted(model: Predictor) -> None:
    """Raises NotFittedError unless ``fit`` or ``load`` has been called."""
    if not model.fitted:
        name = type(model).__name__
        raise NotFittedError(f"this {name} is not fitted yet; call fit or {name}.load first")
