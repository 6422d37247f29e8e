"""Scores as probabilities: learnt on held-out documents, saved with the model.

One curve turns the scores of all labels into probabilities, so it needs few documents and works for
labels that none of them has. Curves by rank, by depth in the tree or by training frequency refine
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from labelgrove.core.arrays import Array, Bools, Float32, Float64, Int32
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.errors import ConfigError
from labelgrove.evaluation.curves import Curve, CurveKind, Scale
from labelgrove.evaluation.predictions import Fittable, Predictions, ScoreKind
from labelgrove.evaluation.thresholds import expected_sizes
from labelgrove.labels.tree import LabelTree

By = Literal["none", "rank", "level", "frequency"]

RANK_STARTS = (0, 1, 2, 3, 5, 10)  # ranks 1, 2, 3, 4-5, 6-10, 11 and later
MOST_CURVES = 10_000  # one for all labels, and one per group: a level of a tree has the most
VISIBLE = 20  # ranks whose probabilities are written with different digits
WRITTEN = np.float32(1.5e-6)  # a difference that six digits, as files and the service have, show
_STORED = ("kind", "by", "score_kind", "places", "threshold", "report")


@dataclass(frozen=True)
class Calibration:
    """The curves that turn a model's scores into probabilities, and the chosen thresholds.

    ``curves[0]`` is for all labels; ``curves[1 + g]`` for group g, if it has one. Groups are ranks
    (``by="rank"``) or ``groups`` of labels.
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

    def label_chances(self, scores: Array, columns: Int32) -> Float32:
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


def _through(
    curves: tuple[Curve | None, ...],
    units: Float64,
    groups: Int32 | None,
) -> Float64:
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

    A curve is nearly flat where it has seen no difference, above all at its upper end. The best
    labels also differ in the digits that are written; for all labels that would shift the last ones
    too much.
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


class Predictor(Fittable, Protocol):
    """A fitted model: what scoring and calibration ask of it, whatever its method."""

    calibration_: Calibration | None

    @property
    def method(self) -> str: ...

    @property
    def index_(self) -> LabelIndex: ...

    @property
    def facts_(self) -> TrainingFacts: ...

    def trees(self) -> dict[str, LabelTree]: ...

    def predict(
        self, X: Any, k: int = 5, *, raw: bool = False, threads: int | None = None
    ) -> Predictions: ...


def groups_of(predictions: Predictions, by: By, groups: Int32 | None) -> Int32 | None:
    if by == "rank":
        ranks = np.searchsorted(RANK_STARTS, np.arange(predictions.k), side="right") - 1
        return np.broadcast_to(ranks.astype(np.int32), predictions.columns.shape)
    return None if groups is None else groups[predictions.columns]


def label_groups(model: Predictor, by: By) -> Int32 | None:
    """The group of each label, whose curve it uses; None if labels have no groups."""
    if by == "frequency":
        from labelgrove.evaluation.metrics.bins import frequency_bin

        return frequency_bin(model.facts_.frequencies).astype(np.int32)
    if by != "level":
        return None
    tree = next(iter(model.trees().values()), None)
    if tree is None:
        raise ConfigError(f"by: this {model.method} model has no label tree, so no levels")
    return tree.label_depths()
