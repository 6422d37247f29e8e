"""A fitted model as calibration and measurements see it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import NotFittedError
from labelgrove.scores.predictions import Predictions


class Facts(Protocol):
    """The training data in numbers: how many documents, and how many of them have each label."""

    @property
    def documents(self) -> int: ...
    @property
    def frequencies(self) -> npt.NDArray[np.int64]: ...


class Predictor(Protocol):
    """A fitted model: labels and scores for documents, and its calibration if it has one."""

    calibration_: Any

    @property
    def method(self) -> str: ...
    @property
    def index_(self) -> LabelIndex: ...
    @property
    def facts_(self) -> Facts: ...

    def predict(
        self, X: Any, k: int = 5, *, raw: bool = False, threads: int | None = None
    ) -> Predictions: ...

    def score_labels(
        self, X: Any, labels: Any, *, raw: bool = False, threads: int | None = None
    ) -> Any: ...


def check_fitted(model: object) -> None:
    """Raises NotFittedError unless ``fit`` or ``load`` has been called."""
    if not hasattr(model, "index_"):
        name = type(model).__name__
        raise NotFittedError(f"this {name} is not fitted yet; call fit or {name}.load first")
