"""What a model is usually measured by: lists of the best labels, and sets of labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from labelgrove.errors import ConfigError, DataError

if TYPE_CHECKING:
    from labelgrove.core.arrays import CSR, Int64
    from labelgrove.evaluation.calibration import Calibration
    from labelgrove.evaluation.metrics import Evaluation
    from labelgrove.evaluation.metrics.ranking import Truth
    from labelgrove.evaluation.predictions import Predictions

METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10"]
SET_METRICS = ["micro-F1@set", "macro-F1@set", "F1@set"]  # of calibrated models


@dataclass(frozen=True)
class Measures:
    """The metrics to compute; without any, those that a model is usually judged by."""

    of_lists: list[str]
    of_sets: list[str]
    calibration: Calibration | None  # if sets are measured

    @classmethod
    def of(cls, metrics: list[str] | None, calibration: Calibration | None) -> Measures:
        from labelgrove.evaluation.metrics import parse_metric

        names = metrics or [*METRICS, *(SET_METRICS if calibration is not None else [])]
        of_sets = [name for name in names if parse_metric(name).of_set]
        if of_sets and calibration is None:
            raise ConfigError(
                f"{of_sets[0]}: the model must be calibrated to return sets of labels: "
                "labelgrove calibrate MODEL DEV"
            )
        of_lists = [name for name in names if name not in of_sets]
        return cls(of_lists, of_sets, calibration if of_sets else None)

    def labels_needed(self, *, filtered: bool) -> int:
        """How many labels of each document the metrics look at."""
        from labelgrove.evaluation.metrics import parse_metric

        # Filtered pairs make room for the labels behind them: ask for a few more.
        spare = 10 if filtered else 0
        k = max((parse_metric(name).k or 100 for name in self.of_lists), default=1) + spare
        return k if self.calibration is None else max(k, self.calibration.places)

    def evaluate(self, predictions: Predictions, labels: Truth, **settings: Any) -> Evaluation:
        """``settings`` are arguments of metrics.evaluate."""
        from labelgrove.evaluation.metrics import evaluate

        results = []
        if self.of_lists:
            results.append(evaluate(predictions, labels, metrics=self.of_lists, **settings))
        if self.calibration is not None:
            sets = self.calibration.choose(predictions.top(self.calibration.places))
            results.append(evaluate(sets, labels, metrics=self.of_sets, **settings))
        first, last = results[0], results[-1]
        values, intervals = first.values | last.values, first.intervals | last.intervals
        return replace(first, values=values, intervals=intervals)


def check_labels(labels: CSR, unknown: Int64) -> None:
    """Raises an error for documents without labels, or with labels that the model does not know."""
    from labelgrove.data.inputs import check_known_labels

    if labels.nnz == 0 and not unknown.any():
        raise DataError("cannot evaluate: no document of the corpus has a label")
    check_known_labels(labels, unknown)
