"""Measure predictions: ranking, propensity-scored, micro and macro metrics with intervals."""

from labelgrove.evaluation.metrics.evaluation import (
    DEFAULT_METRICS,
    Comparison,
    Contest,
    Evaluation,
    Scorer,
    compare_all,
    evaluate,
    scorer,
)
from labelgrove.evaluation.metrics.measures import LabelScores
from labelgrove.evaluation.metrics.names import Metric, parse_metric
from labelgrove.evaluation.metrics.propensity import Propensity
from labelgrove.evaluation.metrics.ranking import BinScore, by_frequency, by_label

__all__ = [
    "BinScore",
    "Comparison",
    "Contest",
    "DEFAULT_METRICS",
    "Evaluation",
    "LabelScores",
    "Metric",
    "Propensity",
    "Scorer",
    "by_frequency",
    "by_label",
    "compare_all",
    "evaluate",
    "parse_metric",
    "scorer",
]
