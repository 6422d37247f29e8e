"""scikit-learn scorers by metric name, for GridSearchCV and cross_val_score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelgrove.core.late import sparse
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.frames import label_column
from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics.evaluation import evaluate
from labelgrove.evaluation.metrics.names import PER_BIN, PROPENSITY_SCORED, parse_metric
from labelgrove.evaluation.metrics.propensity import Propensity
from labelgrove.evaluation.metrics.ranking import Truth


@dataclass(frozen=True)
class Scorer:
    """A callable ``(estimator, X, y) -> float``; :func:`scorer` makes one."""

    metric: str
    k: int
    propensity: Propensity

    def __call__(self, estimator: Any, X: Any, y: Truth) -> float:
        predictions = estimator.predict(X, k=self.k)
        matrix = sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2)
        column = label_column(y)
        labels = y if column is None else column
        truth, unknown = (y, None) if matrix else estimator.index_.encode(labels)
        facts: TrainingFacts | None = None
        if parse_metric(self.metric).family in (*PROPENSITY_SCORED, *PER_BIN):
            facts = getattr(estimator, "facts_", None)
            if facts is None:
                raise ConfigError(
                    f"scorer {self.metric}: the estimator needs facts_.frequencies (training "
                    "documents per label) and facts_.documents"
                )
        return evaluate(
            predictions,
            truth,
            unknown=unknown,
            metrics=[self.metric],
            train_frequencies=None if facts is None else facts.frequencies,
            n_train=None if facts is None else facts.documents,
            propensity=self.propensity,
        )[self.metric]


def scorer(name: str, *, k: int | None = None, propensity: Propensity | str = "default") -> Scorer:
    """A scorer for scikit-learn's tools; higher scores are better.

    ``y`` is a list of label lists or a documents x labels matrix with the estimator's columns. The
    estimator predicts ``k`` labels: by default as many as the metric needs, or 100 for a metric
    with a threshold.

    >>> scorer("ndcg@5")
    Scorer(metric='nDCG@5', k=5, propensity=Propensity(a=0.55, b=1.5))
    """
    metric = parse_metric(name)
    if k is None:
        k = metric.k or 100
    if k < (metric.k or 1):
        raise ConfigError(f"scorer {metric}: k = {k} predictions are too few")
    if isinstance(propensity, str):
        propensity = Propensity.preset(propensity)
    return Scorer(str(metric), k, propensity)
