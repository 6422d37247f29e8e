"""Scores as probabilities: learnt on held-out documents, saved with the model.

One curve turns the scores of all labels into probabilities, so it needs few documents and works for
labels that none of them has. Curves by rank, by depth in the tree or by training frequency refine
it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelgrove.calibrating.curves import Curve, CurveKind, Scale, fit_curve
from labelgrove.calibrating.reliability import Reliability, reliability
from labelgrove.calibrating.thresholds import Target, best_threshold, check_target, label_thresholds
from labelgrove.core.arrays import Float32
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.data.inputs import (
    check_k,
    check_known_labels,
    documents_of,
    labelled_corpus,
    with_fields,
)
from labelgrove.errors import ConfigError, DataError, warn
from labelgrove.scores.predictions import Predictions, Predictor, ScoreKind, check_fitted

By = Literal["none", "rank", "level", "frequency"]
Kind = Literal["auto", "isotonic", "beta"]

RANK_STARTS = (0, 1, 2, 3, 5, 10)  # ranks 1, 2, 3, 4-5, 6-10, 11 and later
FEWEST_PAIRS, FEWEST_OF_EACH = 200, 10  # of a group, for its own curve
FEWEST_DOCUMENTS = 10
FOLDS = 5
SEED = 0
FIRST_RANKS = 5  # whose scores must stay distinct
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
    groups: npt.NDArray[np.int32] | None = None
    threshold: float = 0.0
    label_thresholds: Float32 | None = None
    report: dict[str, Any] | None = None

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
        chances = self.chances(predictions)
        if not self.reorders:
            scores = _falling(predictions, chances)
            return replace(predictions, scores=scores, score_kind="probability")
        return replace(predictions.with_scores(chances), score_kind="probability")

    def chances(self, predictions: Predictions) -> npt.NDArray[np.float64]:
        """Probabilities in the order of the scores; meaningless in the padding."""
        units = self.scale(predictions.scores)
        return _through(self.curves, units, _groups_of(predictions, self.by, self.groups))

    def label_chances(self, scores: Any, columns: Any) -> Float32:
        """Probabilities of single scores of given label columns, whatever their ranks."""
        units = self.scale(scores)
        groups = None if self.groups is None else self.groups[columns]
        return _through(self.curves, units, groups).astype(np.float32)

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
        arrays: dict[str, npt.NDArray[Any]] = {
            f"curve.{number}": curve.numbers
            for number, curve in enumerate(self.curves)
            if curve is not None
        }
        if self.groups is not None:
            arrays["groups"] = self.groups
        if self.label_thresholds is not None:
            arrays["label_thresholds"] = self.label_thresholds
        config = {name: getattr(self, name) for name in _STORED}
        return Part(config | {"scale": self.scale, "curves": len(self.curves)}, arrays)

    @classmethod
    def from_state(cls, part: Part) -> Calibration:
        config, arrays = part.config, part.arrays
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


def calibrate(
    model: Predictor,
    X: Any,
    y: Any = None,
    *,
    kind: Kind = "auto",
    by: By = "none",
    k: int = 20,
    target: Target = "f1",
    per_label: bool = False,
    fewest: int = 10,
    threads: int | None = None,
) -> Calibration:
    """Learns a fitted model's probabilities from documents that it was not trained on.

    From now on the model's ``predict`` returns probabilities (``raw=True``: the scores as before),
    and ``min_score="auto"`` returns the labels that reach the chosen threshold: the one with the
    best F1 over all labels, or with the precision given as ``target``. With ``per_label``, labels
    with at least ``fewest`` of the documents get their own thresholds. ``kind="auto"`` takes the
    kind of curve that does better on documents that it was not fitted to. The ``k`` best labels of
    each document count. The result's ``report`` compares scores before with probabilities after,
    the latter measured by cross-fitting.

    >>> from labelgrove import Linear
    >>> texts, labels = ["red shoe", "blue hat"] * 20, [["shoes"], ["hats"]] * 20
    >>> model = Linear().fit(texts, labels)
    >>> calibrate(model, texts, labels).kind in ("isotonic", "beta")
    True
    >>> model.predict(["a red shoe"], k=1).score_kind
    'probability'
    """
    from labelgrove.metrics.ranking import judge  # every prediction loads this module

    check_fitted(model)
    check_target(target)
    _check_choice("kind", kind, ("auto", "isotonic", "beta"))
    _check_choice("by", by, ("none", "rank", "level", "frequency"))
    if y is None and not isinstance(X, Corpus):
        raise DataError("calibrate needs the true labels of the documents")
    X = with_fields(X, model.facts_.fields)
    documents = labelled_corpus(X, y, None if y is None else model.index_)
    corpus = documents if documents.index == model.index_ else documents.reindex(model.index_)
    truth, unknown = corpus.labels, corpus.unknown
    if len(documents) < FEWEST_DOCUMENTS:
        raise DataError(
            f"calibration needs at least {FEWEST_DOCUMENTS} documents, got {len(documents)}"
        )
    check_known_labels(truth, unknown)
    notes = [note for note in [model.facts_.warning(corpus)] if note]
    for note in notes:
        warn(note)
    inputs = X if isinstance(X, Corpus) else documents_of(documents).plain
    predictions = model.predict(inputs, k=check_k(k), raw=True, threads=threads)
    judged = judge(predictions, truth, unknown=unknown)
    groups = label_groups(model, by)
    true = int(judged.sizes.sum())
    own = fewest if per_label else None
    scale = Scale.of(predictions.scores[predictions.used], predictions.score_kind)
    data = _Data(predictions, judged.hits, judged.truth, true, scale, by, groups, target, own)
    if not 0 < data.hits[data.used].sum() < data.used.sum():
        raise DataError(
            "the predicted labels of these documents are all true or all wrong, so there is "
            "nothing to learn from them; give more documents"
        )
    kinds: tuple[CurveKind, ...] = ("isotonic", "beta") if kind == "auto" else (kind,)
    trials = {name: _crossfit(data, name) for name in kinds}
    best = min(kinds, key=lambda name: trials[name][0].brier)
    after, quality = trials[best]
    calibration = _fit(data, best, np.ones(len(predictions), bool))
    _check_distinct(calibration, predictions)
    units = scale(predictions.scores)
    report = {
        "documents": len(predictions),
        "labels_per_document": predictions.k,
        "target": target,
        "before": reliability(units[data.used], data.hits[data.used]).to_json(),
        "after": after.to_json(),
        "at_threshold": quality,
        "own_curves": sum(curve is not None for curve in calibration.curves[1:]),
        "notes": notes,
    }
    calibration = replace(calibration, report=report)
    model.calibration_ = calibration
    return calibration


@dataclass(frozen=True)
class _Data:
    """Predictions of documents with known labels, and how to choose thresholds."""

    predictions: Predictions
    hits: npt.NDArray[np.bool_]
    truth: Any
    true: int  # labels of the documents, known to the model or not
    scale: Scale
    by: By
    groups: npt.NDArray[np.int32] | None
    target: Target
    fewest: int | None  # documents of a label with its own threshold; None: no label has one

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        return self.predictions.used


def _fit(data: _Data, kind: CurveKind, rows: npt.NDArray[np.bool_]) -> Calibration:
    """Curves and thresholds from some of the documents."""
    predictions = data.predictions
    chosen = data.used & rows[:, None]
    units = data.scale(predictions.scores)[chosen]
    hits = data.hits[chosen]
    curves: list[Curve | None] = [fit_curve(units, hits, kind)]
    group = _groups_of(predictions, data.by, data.groups)
    if group is not None:
        member = group[chosen]
        for number in range(int(group.max()) + 1):
            here = member == number
            pairs, right = here.sum(), hits[here].sum()
            enough = pairs >= FEWEST_PAIRS and FEWEST_OF_EACH <= right <= pairs - FEWEST_OF_EACH
            curves.append(fit_curve(units[here], hits[here], kind) if enough else None)
    calibration = Calibration(
        kind,
        data.by,
        predictions.score_kind,
        predictions.k,
        data.scale,
        tuple(curves),
        groups=data.groups,
    )
    scores = calibration.chances(predictions)[chosen]
    threshold = best_threshold(scores, hits, round(data.true * rows.sum() / len(rows)), data.target)
    own = None
    if data.fewest is not None:
        truth = data.truth[rows]
        own = label_thresholds(
            predictions.columns[chosen],
            scores,
            hits,
            np.bincount(truth.indices, minlength=truth.shape[1]),
            data.target,
            shared=threshold,
            fewest=data.fewest,
        )
    return replace(calibration, threshold=threshold, label_thresholds=own)


def _crossfit(data: _Data, kind: CurveKind) -> tuple[Reliability, dict[str, float]]:
    """The quality of probabilities and thresholds on documents that they were not fitted to."""
    rows = len(data.predictions)
    fold = np.random.default_rng(SEED).permutation(rows) % FOLDS
    chances = np.zeros(data.hits.shape)
    given = right = 0
    for number in range(FOLDS):
        inside = fold == number
        fitted = _fit(data, kind, ~inside)
        chances[inside] = fitted.chances(data.predictions)[inside]
        least = fitted.minimum()
        limits = least if isinstance(least, float) else least[data.predictions.columns]
        reached = data.used & inside[:, None] & (chances >= limits)
        given += int(reached.sum())
        right += int((reached & data.hits).sum())
    quality = {
        "precision": right / max(given, 1),
        "recall": right / max(data.true, 1),
        "f1": 2 * right / max(given + data.true, 1),
        "labels_per_document": given / rows,
    }
    rounded = {name: round(value, 6) for name, value in quality.items()}
    return reliability(chances[data.used], data.hits[data.used]), rounded


def _through(
    curves: tuple[Curve | None, ...],
    units: npt.NDArray[np.float64],
    groups: npt.NDArray[np.int32] | None,
) -> npt.NDArray[np.float64]:
    shared = curves[0]
    assert shared is not None
    chances = shared(units)
    if groups is None:
        return chances
    for number, curve in enumerate(curves[1:]):
        if curve is not None:
            here = np.broadcast_to(groups == number, units.shape)
            chances[here] = curve(units[here])
    return chances


def _falling(predictions: Predictions, chances: npt.NDArray[np.float64]) -> Float32:
    """Chances in the order of the scores: equal where these are equal, else strictly falling."""
    before, used = predictions.scores, predictions.used
    scores = np.where(used, chances, -np.inf).astype(np.float32)
    if np.array_equal(scores[:, 1:] < scores[:, :-1], before[:, 1:] < before[:, :-1]):
        return scores
    for rank in range(1, predictions.k):
        above = scores[:, rank - 1]
        same = before[:, rank] == before[:, rank - 1]
        limit = np.where(same, above, np.nextafter(above, np.float32(-np.inf)))
        scores[:, rank] = np.where(same, limit, np.minimum(scores[:, rank], limit))
    return np.where(used, np.maximum(scores, 0), np.float32(-np.inf))


def _check_distinct(calibration: Calibration, predictions: Predictions) -> None:
    """Refuses curves that give most neighbours in a ranking the same probability."""
    first, used = predictions.scores[:, :FIRST_RANKS], predictions.used[:, :FIRST_RANKS]
    chances = calibration.chances(predictions)[:, :FIRST_RANKS].astype(np.float32)
    differ = used[:, 1:] & (first[:, 1:] < first[:, :-1])
    collapsed = differ & (chances[:, 1:] == chances[:, :-1])
    if collapsed.sum() * 2 > differ.sum():
        raise DataError(
            f"calibration would give {collapsed.sum():,} of {differ.sum():,} neighbouring labels "
            f"with different scores ({predictions.score_kind}) the same probability; the model "
            "stays as it was. Are its scores almost all equal?"
        )


def _groups_of(
    predictions: Predictions, by: By, groups: npt.NDArray[np.int32] | None
) -> npt.NDArray[np.int32] | None:
    if by == "rank":
        ranks = np.searchsorted(RANK_STARTS, np.arange(predictions.k), side="right") - 1
        return np.broadcast_to(ranks.astype(np.int32), predictions.columns.shape)
    return None if groups is None else groups[predictions.columns]


def label_groups(model: Predictor, by: By) -> npt.NDArray[np.int32] | None:
    """The group of each label, whose curve it uses; None if labels have no groups."""
    if by == "frequency":
        from labelgrove.metrics.bins import frequency_bin

        return frequency_bin(model.facts_.frequencies).astype(np.int32)
    if by != "level":
        return None
    tree = next(iter(model.trees().values()), None)
    if tree is None:
        raise ConfigError(f"by: this {model.method} model has no label tree, so no levels")
    return tree.label_depths()


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}: must be one of {', '.join(choices)}, got {value!r}")
