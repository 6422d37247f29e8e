"""Measure predictions: ranking, propensity-scored, micro and macro metrics with intervals."""

from labelgrove.evaluation.metrics.bins import BinScore, by_frequency, frequency_bin
from labelgrove.evaluation.metrics.contest import Contest, compare_all
from labelgrove.evaluation.metrics.evaluation import (
    DEFAULT_METRICS,
    Comparison,
    Evaluation,
    evaluate,
)
from labelgrove.evaluation.metrics.intervals import Interval
from labelgrove.evaluation.metrics.measures import LabelScores
from labelgrove.evaluation.metrics.names import BIN_NAMES, Metric, parse_metric
from labelgrove.evaluation.metrics.propensity import Propensity
from labelgrove.evaluation.metrics.ranking import by_label
from labelgrove.evaluation.metrics.scoring import Scorer, scorer

__all__ = [
    "BIN_NAMES",
    "BinScore",
    "Comparison",
    "Contest",
    "DEFAULT_METRICS",
    "Evaluation",
    "Interval",
    "LabelScores",
    "Metric",
    "Propensity",
    "Scorer",
    "by_frequency",
    "by_label",
    "compare_all",
    "evaluate",
    "frequency_bin",
    "parse_metric",
    "scorer",
]
