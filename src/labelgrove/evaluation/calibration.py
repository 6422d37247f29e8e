"""Scores as probabilities: learnt on held-out documents, saved with the model.

One curve turns the scores of all labels into probabilities, so it needs few documents and works for
labels that none of them has. Curves by rank or by training frequency refine it. Thresholds say
which labels are worth returning: for the best F1 of three kinds, or for a given precision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from labelgrove.core.arrays import Array, Bools, Float32, Float64, Int32, Int64
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.part import Part
from labelgrove.errors import ConfigError
from labelgrove.evaluation.curves import Curve, CurveKind, Scale
from labelgrove.evaluation.predictions import Predictions, ScoreKind

Target = Literal["micro-F1", "macro-F1", "document-F1", "f1"] | float
F1_TARGETS = ("micro-F1", "macro-F1", "document-F1")  # "f1" is an older name of the first


def check_target(target: object) -> None:
    """Refuses anything but the names of F1 or a precision."""
    number = isinstance(target, (int, float)) and not isinstance(target, bool) and 0 < target <= 1
    if target not in (*F1_TARGETS, "f1") and not number:
        raise ConfigError(
            f"target: must be {', '.join(F1_TARGETS)} or a precision above 0 and up to 1, "
            f"got {target!r}"
        )


def best_threshold(scores: Float64, hits: Bools, true: int, target: Target) -> float:
    """The threshold with the largest F1, or the lowest that reaches a precision or comes nearest.

    The documents have ``true`` labels. The threshold lies halfway between two scores.
    """
    if len(scores) == 0:
        return 0.0
    order = np.argsort(-scores, kind="stable")
    arranged = scores[order]
    right = np.cumsum(hits[order])
    given = np.arange(1, len(scores) + 1)
    ends = _ends(arranged)
    if isinstance(target, str):
        chosen = int(np.argmax(2 * right[ends] / (given[ends] + max(true, 1))))
    else:
        precision = right[ends] / given[ends]
        reached = np.flatnonzero(precision >= target)
        chosen = int(reached[-1]) if len(reached) else int(np.argmax(precision))
    return _after(arranged, ends, chosen)


def _ends(arranged: Float64) -> Int64:
    """Where falling scores may be cut: labels of equal scores are returned together or not."""
    return np.append(np.flatnonzero(np.diff(arranged)), len(arranged) - 1)


def _after(arranged: Float64, ends: Int64, chosen: int) -> float:
    """The threshold between the chosen end and the next score."""
    above = float(arranged[ends[chosen]])
    below = float(arranged[ends[chosen + 1]]) if chosen + 1 < len(ends) else 0.0
    return (above + min(below, above)) / 2


def macro_thresholds(
    columns: Int32, scores: Float64, hits: Bools, true: Int64, bins: Array, *, fewest: int
) -> tuple[float, Float32]:
    """The threshold with the best mean F1 over labels, and a better one for each label's bin.

    A bin with fewer than ``fewest`` hits uses the common threshold. A label's F1 does not depend on
    other labels, so every bin can be cut for itself.
    """
    gains = _label_gains(columns, scores, hits, true)
    shared = _best_sum(scores, gains)
    chosen = np.full(len(true), shared, np.float32)
    for number in np.unique(bins).tolist():
        here = bins[columns] == number
        if hits[here].sum() >= fewest:
            chosen[bins == number] = _best_sum(scores[here], gains[here])
    return shared, chosen


def _label_gains(columns: Int32, scores: Float64, hits: Bools, true: Int64) -> Float64:
    """By how much each entry changes the F1 of its label, after those with better scores."""
    gains = np.zeros(len(columns))
    if len(columns) == 0:
        return gains
    order = np.lexsort((-scores, columns))
    labels, right = columns[order], np.cumsum(hits[order])
    starts = np.append(0, np.flatnonzero(np.diff(labels)) + 1)
    first = np.repeat(starts, np.diff(np.append(starts, len(labels))))
    before = right[first] - hits[order][first]
    f1 = 2 * (right - before) / (np.arange(len(labels)) - first + 1 + true[labels])
    f1[true[labels] == 0] = 0.0
    changes = np.diff(f1, prepend=0.0)
    changes[starts] = f1[starts]
    gains[order] = changes
    return gains


def _best_sum(scores: Float64, gains: Float64) -> float:
    """The threshold above which the gains have the largest sum."""
    if len(scores) == 0:
        return 0.0
    order = np.argsort(-scores, kind="stable")
    arranged = scores[order]
    ends = _ends(arranged)
    return _after(arranged, ends, int(np.argmax(np.cumsum(gains[order])[ends])))


def expected_sizes(probabilities: Array) -> Int64:
    """How many of its likeliest labels give each document (a row) the best expected F1.

    ``probabilities`` are best first. m labels are expected to have the sum of theirs as hits, and
    the document the sum of all as labels: F1 is 2 hits / (m + labels).
    """
    hits = np.cumsum(probabilities, axis=1, dtype=np.float64)
    given = np.arange(1, probabilities.shape[1] + 1)
    sizes: Int64 = np.argmax(2 * hits / (given + hits[:, -1:]), axis=1) + 1
    return sizes


By = Literal["none", "rank", "frequency"]

RANK_STARTS = (0, 1, 2, 3, 5, 10)  # ranks 1, 2, 3, 4-5, 6-10, 11 and later
MOST_CURVES = 10_000  # one for all labels, and one per group
VISIBLE = 20  # ranks whose probabilities are written with different digits
WRITTEN = np.float32(1.5e-6)  # a difference that six digits, as files and the service have, show
_STORED = ("kind", "by", "score_kind", "places", "threshold", "report")


@dataclass(frozen=True)
class Calibration:
    """The curves that turn a model's scores into probabilities, and the chosen thresholds.

    ``curves[0]`` is for all labels; ``curves[1 + g]`` for group g of ranks or of labels, if any.
    Calibrations of earlier releases may have levels of a tree as groups of labels.
    """

    kind: CurveKind
    by: By
    score_kind: ScoreKind
    places: int  # labels of each document that it was learnt from
    scale: Scale
    curves: tuple[Curve | None, ...]
    groups: Int32 | None = None
    threshold: float = 0.0
    label_thresholds: Float32 | None = None
    by_document: bool = False  # sets with the best expected F1 instead of thresholds
    report: JsonObject | None = None

    @property
    def reorders(self) -> bool:
        """Whether labels may change ranks, because their curves differ."""
        return self.groups is not None

    def __call__(self, predictions: Predictions) -> Predictions:
        """Predictions with probabilities as scores, best first."""
        if predictions.score_kind != self.score_kind:
            raise ConfigError(
                f"this model was calibrated for scores of the kind {self.score_kind}, these are "
                f"of the kind {predictions.score_kind}; calibrate again, or ask for raw scores"
            )
        probabilities = self.probabilities(predictions)
        ranked: Array = predictions.scores
        if self.reorders:
            order = np.argsort(
                np.where(predictions.used, -probabilities, np.inf), axis=1, kind="stable"
            )
            columns = np.take_along_axis(predictions.columns, order, 1)
            predictions = replace(predictions, columns=columns)
            probabilities = ranked = np.take_along_axis(probabilities, order, 1)
        scores = _falling(predictions.used, ranked, probabilities)
        return replace(predictions, scores=scores, score_kind="probability")

    def probabilities(self, predictions: Predictions) -> Float64:
        """Probabilities in the order of the scores; meaningless in the padding."""
        units = self.scale(predictions.scores)
        return _through(self.curves, units, groups_of(predictions, self.by, self.groups))

    def label_probabilities(self, scores: Array, columns: Int32) -> Float32:
        """Probabilities of single scores of given label columns, whatever their ranks."""
        units = self.scale(scores)
        groups = None if self.groups is None else self.groups[columns]
        return _through(self.curves, units, groups).astype(np.float32)

    def choose(self, predictions: Predictions) -> Predictions:
        """The labels to return among predictions with probabilities, as the target demands."""
        if not self.by_document:
            return predictions.above(self.minimum())
        predictions = predictions.top(self.places)
        probabilities = np.where(predictions.used, predictions.scores, 0.0)
        return predictions.first(expected_sizes(probabilities))

    def minimum(self) -> float | Float32:
        """The chosen threshold, or one per label if labels have their own."""
        if self.label_thresholds is None:
            return self.threshold
        own = self.label_thresholds
        filled: Float32 = np.where(np.isnan(own), np.float32(self.threshold), own)
        return filled

    def __repr__(self) -> str:
        by = "" if self.by == "none" else f", by {self.by}"
        own = "" if self.label_thresholds is None else ", and labels have their own"
        documents = "" if self.report is None else f", {self.report['documents']:,} documents"
        return f"Calibration({self.kind}{by}, threshold {self.threshold:.3f}{own}{documents})"

    def state(self) -> Part:
        arrays: dict[str, Array] = {
            f"curve.{number}": curve.numbers
            for number, curve in enumerate(self.curves)
            if curve is not None
        }
        if self.groups is not None:
            arrays["groups"] = self.groups
        if self.label_thresholds is not None:
            arrays["label_thresholds"] = self.label_thresholds
        config = {name: getattr(self, name) for name in (*_STORED, "by_document")}
        return Part(config | {"scale": self.scale, "curves": len(self.curves)}, arrays)

    @classmethod
    def from_state(cls, part: Part) -> Calibration:
        config, arrays = part.config, part.arrays
        if config["curves"] > MOST_CURVES:
            raise ValueError("too many curves")
        names = [f"curve.{number}" for number in range(config["curves"])]
        calibration = cls(
            # Calibrations of version 0.1 had no scale of their own.
            scale=Scale(*config.get("scale", [config["score_kind"] == "margin"])),
            curves=tuple(
                Curve(config["kind"], np.asarray(arrays[name])) if name in arrays else None
                for name in names
            ),
            groups=arrays.get("groups"),
            label_thresholds=arrays.get("label_thresholds"),
            by_document=config.get("by_document", False),  # there were only thresholds
            **{name: config[name] for name in _STORED},
        )
        # What is damaged should fail when the model is loaded, not at the first request.
        units = np.linspace(0.0, 1.0, 3)
        for curve in calibration.curves:
            if curve is not None and curve(units).shape != units.shape:
                raise ValueError("a curve has too many numbers")
        _through(calibration.curves, units, None)
        calibration.minimum()
        return calibration


def _through(curves: tuple[Curve | None, ...], units: Float64, groups: Int32 | None) -> Float64:
    shared = curves[0]
    assert shared is not None
    probabilities = shared(units)
    if groups is None:
        return probabilities
    for number, curve in enumerate(curves[1:]):
        if curve is not None:
            here = np.broadcast_to(groups == number, units.shape)
            probabilities[here] = curve(units[here])
    return probabilities


def _falling(used: Bools, ranked: Array, probabilities: Float64) -> Float32:
    """Chances in the order of ``ranked``: equal where that is equal, else strictly falling.

    A curve is nearly flat where it has seen no difference. The best labels also differ in the
    digits that are written; for all labels that would shift the last ones too much.
    """
    scores = np.where(used, probabilities, -np.inf).astype(np.float32)
    same = ranked[:, 1:] == ranked[:, :-1]
    for rank in range(1, scores.shape[1]):
        above = scores[:, rank - 1]
        below = np.nextafter(above, np.float32(-np.inf))
        if rank < VISIBLE:
            below = np.minimum(below, np.maximum(above - WRITTEN, above * np.float32(0.99)))
        scores[:, rank] = np.where(same[:, rank - 1], above, np.minimum(scores[:, rank], below))
    return np.where(used, np.maximum(scores, 0), np.float32(-np.inf))


def groups_of(predictions: Predictions, by: By, groups: Int32 | None) -> Int32 | None:
    """The group of each entry, whose curve it uses; None without groups."""
    if by == "rank":
        ranks = np.searchsorted(RANK_STARTS, np.arange(predictions.k), side="right") - 1
        return np.broadcast_to(ranks.astype(np.int32), predictions.columns.shape)
    return None if groups is None else groups[predictions.columns]
