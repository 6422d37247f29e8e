"""Scores that are probabilities: learnt on held-out documents, kept with the model.

One curve turns the scores of all labels into probabilities, so it needs few documents and knows
labels that were never seen there. Curves by place in the list, by depth in the tree or by training
frequency are refinements of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelgrove.calibrating.curves import Curve, CurveKind, fit_curve, unit_scores
from labelgrove.calibrating.reliability import Reliability, reliability
from labelgrove.calibrating.thresholds import Target, best_threshold, check_target, label_thresholds
from labelgrove.core.arrays import Float32
from labelgrove.data.corpus import Corpus
from labelgrove.disk.part import Part
from labelgrove.errors import ConfigError, DataError
from labelgrove.scores.predictions import Predictions, ScoreKind

By = Literal["none", "rank", "level", "frequency"]
Kind = Literal["auto", "isotonic", "beta"]

RANK_STARTS = (0, 1, 2, 3, 5, 10)  # places 1, 2, 3, 4-5, 6-10, 11 and later
FEWEST_PAIRS, FEWEST_OF_EACH = 200, 10  # for a curve of its own
FEWEST_DOCUMENTS = 10
FOLDS = 5
SEED = 0


@dataclass(frozen=True)
class Calibration:
    """What turns a model's scores into probabilities, and the thresholds chosen with it.

    ``curves[0]`` is that of all labels; ``curves[1 + g]`` that of group g, where there is one. The
    groups are places in the list (``by="rank"``) or ``groups`` of labels.
    """

    kind: CurveKind
    by: By
    score_kind: ScoreKind
    places: int  # how many labels of each document it was learnt from
    curves: tuple[Curve | None, ...]
    groups: npt.NDArray[np.int32] | None = None
    threshold: float = 0.0
    label_thresholds: Float32 | None = None
    report: dict[str, Any] | None = None

    @property
    def reorders(self) -> bool:
        """Whether labels may change places, because their curves differ."""
        return self.groups is not None

    def __call__(self, found: Predictions) -> Predictions:
        """Predictions with probabilities as scores; best first, as ever."""
        if found.score_kind != self.score_kind:
            raise ConfigError(
                f"this model was calibrated for scores of the kind {self.score_kind}, these are "
                f"of the kind {found.score_kind}; calibrate again, or ask for raw scores"
            )
        chances = self.chances(found)
        if not self.reorders:
            return replace(found, scores=_falling(found, chances), score_kind="probability")
        scores: Float32 = np.where(_used(found), chances, -np.inf).astype(np.float32)
        order = np.lexsort((found.columns, -scores), axis=1)
        return replace(
            found,
            columns=np.take_along_axis(found.columns, order, 1),
            scores=np.take_along_axis(scores, order, 1),
            score_kind="probability",
        )

    def chances(self, found: Predictions) -> npt.NDArray[np.float64]:
        """Probabilities in the order of the scores; meaningless past the counts."""
        units = unit_scores(found.scores, found.score_kind)
        return _through(self.curves, units, _groups_of(found, self.by, self.groups))

    def label_chances(self, scores: Any, columns: Any) -> Float32:
        """Probabilities of single scores of given label columns, whatever their place in a list."""
        units = unit_scores(scores, self.score_kind)
        groups = None if self.groups is None else self.groups[columns]
        return _through(self.curves, units, groups).astype(np.float32)

    def minimum(self) -> float | Float32:
        """The threshold that was chosen, of each label where labels have their own."""
        if self.label_thresholds is None:
            return self.threshold
        own = self.label_thresholds
        filled: Float32 = np.where(np.isnan(own), np.float32(self.threshold), own)
        return filled

    def state(self) -> Part:
        """For the model folder."""
        arrays: dict[str, npt.NDArray[Any]] = {
            f"curve.{number}": curve.numbers
            for number, curve in enumerate(self.curves)
            if curve is not None
        }
        if self.groups is not None:
            arrays["groups"] = self.groups
        if self.label_thresholds is not None:
            arrays["label_thresholds"] = self.label_thresholds
        config = {
            "kind": self.kind,
            "by": self.by,
            "score_kind": self.score_kind,
            "places": self.places,
            "curves": len(self.curves),
            "threshold": self.threshold,
            "report": self.report,
        }
        return Part(config, arrays)

    @classmethod
    def from_state(cls, part: Part) -> Calibration:
        """From the model folder."""
        config, arrays = part.config, part.arrays
        names = [f"curve.{number}" for number in range(config["curves"])]
        return cls(
            kind=config["kind"],
            by=config["by"],
            score_kind=config["score_kind"],
            places=config["places"],
            curves=tuple(
                Curve(config["kind"], np.asarray(arrays[name])) if name in arrays else None
                for name in names
            ),
            groups=arrays.get("groups"),
            threshold=config["threshold"],
            label_thresholds=arrays.get("label_thresholds"),
            report=config["report"],
        )


def calibrate(
    model: Any,
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

    From now on the model's ``predict`` gives probabilities (``raw=True``: the scores as before),
    and ``min_score="auto"`` gives the labels that reach the chosen threshold: the one with the best
    F1 over all labels, or with the precision that ``target`` says. With ``per_label``, labels that
    at least ``fewest`` of the documents bear get thresholds of their own. ``kind="auto"`` takes the
    kind of curve that does better on documents that it was not fitted to. The ``k`` best labels of
    each document are looked at. ``report`` of the result says how right scores were before and
    probabilities are after; what is after was measured by cross-fitting.

    >>> from labelgrove import Linear
    >>> texts, labels = ["red shoe", "blue hat"] * 20, [["shoes"], ["hats"]] * 20
    >>> model = Linear().fit(texts, labels)
    >>> calibrate(model, texts, labels).kind in ("isotonic", "beta")
    True
    >>> model.predict(["a red shoe"], k=1).score_kind
    'probability'
    """
    from labelgrove.methods.base import check_fitted, check_k, checked_inputs
    from labelgrove.metrics.ranking import judge

    check_fitted(model)
    check_target(target)
    _check_choice("kind", kind, ("auto", "isotonic", "beta"))
    _check_choice("by", by, ("none", "rank", "level", "frequency"))
    if isinstance(X, Corpus):
        corpus = X if X.index == model.index_ else X.reindex(model.index_)
        documents, truth, unknown = X, corpus.labels, corpus.unknown
    else:
        documents, truth, unknown = checked_inputs(X), y, None
        if y is None:
            raise DataError("calibrate needs the true labels of the documents")
    if len(documents) < FEWEST_DOCUMENTS:
        raise DataError(
            f"calibration needs at least {FEWEST_DOCUMENTS} documents, got {len(documents)}"
        )
    found = model.predict(documents, k=check_k(k), raw=True, threads=threads)
    judged = judge(found, truth, unknown=unknown)
    groups = label_groups(model, by)
    data = _Data(found, judged.hits, judged.truth, int(judged.sizes.sum()), by, groups)
    if not 0 < data.hits[data.used].sum() < data.used.sum():
        raise DataError(
            "the predicted labels of these documents are all true or all wrong: nothing can be "
            "learnt from that"
        )
    kinds: tuple[CurveKind, ...] = ("isotonic", "beta") if kind == "auto" else (kind,)
    choose = _Thresholds(target, per_label, fewest)
    tried = {name: _crossfit(data, name, choose) for name in kinds}
    best = min(kinds, key=lambda name: tried[name].after.brier)
    calibration = _fit(data, best, np.ones(len(found), bool), choose)
    before = reliability(unit_scores(found.scores, found.score_kind)[data.used], data.picked)
    report = {
        "documents": len(found),
        "labels_per_document": found.k,
        "target": target,
        "before": before.to_json(),
        "after": tried[best].after.to_json(),
        "at_threshold": tried[best].quality,
        "own_curves": sum(curve is not None for curve in calibration.curves[1:]),
    }
    calibration = replace(calibration, report=report)
    model.calibration_ = calibration
    return calibration


@dataclass(frozen=True)
class _Thresholds:
    target: Target
    per_label: bool
    fewest: int


@dataclass(frozen=True)
class _Data:
    """Predictions of documents with known labels."""

    found: Predictions
    hits: npt.NDArray[np.bool_]
    truth: Any
    true: int  # labels of the documents, known to the model or not
    by: By
    groups: npt.NDArray[np.int32] | None

    @property
    def used(self) -> npt.NDArray[np.bool_]:
        return _used(self.found)

    @property
    def picked(self) -> npt.NDArray[np.bool_]:
        return self.hits[self.used]


def _fit(
    data: _Data, kind: CurveKind, rows: npt.NDArray[np.bool_], choose: _Thresholds
) -> Calibration:
    """Curves and thresholds from some of the documents."""
    found = data.found
    chosen = data.used & rows[:, None]
    units = unit_scores(found.scores, found.score_kind)[chosen]
    hits = data.hits[chosen]
    curves: list[Curve | None] = [fit_curve(units, hits, kind)]
    group = _groups_of(found, data.by, data.groups)
    if group is not None:
        member = group[chosen]
        for number in range(int(group.max()) + 1):
            here = member == number
            right = int(hits[here].sum())
            enough = here.sum() >= FEWEST_PAIRS
            enough &= min(right, int(here.sum()) - right) >= FEWEST_OF_EACH
            curves.append(fit_curve(units[here], hits[here], kind) if enough else None)
    calibration = Calibration(
        kind, data.by, found.score_kind, found.k, tuple(curves), groups=data.groups
    )
    scores = calibration.chances(found)[chosen]
    truth = data.truth[rows]
    threshold = best_threshold(
        scores, hits, round(data.true * rows.sum() / len(rows)), choose.target
    )
    own = None
    if choose.per_label:
        bearers = np.bincount(truth.indices, minlength=truth.shape[1])
        own = label_thresholds(
            found.columns[chosen],
            scores,
            hits,
            bearers,
            choose.target,
            shared=threshold,
            fewest=choose.fewest,
        )
    return replace(calibration, threshold=threshold, label_thresholds=own)


@dataclass(frozen=True)
class _Tried:
    after: Reliability
    quality: dict[str, float]


def _crossfit(data: _Data, kind: CurveKind, choose: _Thresholds) -> _Tried:
    """How right probabilities and thresholds are on documents that they were not fitted to."""
    rows = len(data.found)
    fold = np.random.default_rng(SEED).permutation(rows) % FOLDS
    chances = np.zeros(data.hits.shape)
    given = right = 0
    for number in range(FOLDS):
        inside = fold == number
        fitted = _fit(data, kind, ~inside, choose)
        chances[inside] = fitted.chances(data.found)[inside]
        least = fitted.minimum()
        limits = least if isinstance(least, float) else least[data.found.columns]
        kept = data.used & inside[:, None] & (chances >= limits)
        given += int(kept.sum())
        right += int((kept & data.hits).sum())
    quality = {
        "precision": right / max(given, 1),
        "recall": right / max(data.true, 1),
        "f1": 2 * right / max(given + data.true, 1),
        "labels_per_document": given / rows,
    }
    rounded = {name: round(value, 6) for name, value in quality.items()}
    return _Tried(reliability(np.clip(chances[data.used], 0, 1), data.picked), rounded)


def _used(found: Predictions) -> npt.NDArray[np.bool_]:
    return np.arange(found.k) < found.counts[:, None]


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


def _falling(found: Predictions, chances: npt.NDArray[np.float64]) -> Float32:
    """Chances that keep the order of the scores: equal where these are, else strictly falling."""
    scores = np.where(_used(found), chances, -np.inf).astype(np.float32)
    fell = found.scores[:, 1:] < found.scores[:, :-1]
    if np.array_equal(scores[:, 1:] < scores[:, :-1], fell):
        return scores
    for place in range(1, found.k):
        before = scores[:, place - 1]
        same = found.scores[:, place] == found.scores[:, place - 1]
        limit = np.where(same, before, np.nextafter(before, np.float32(-np.inf)))
        scores[:, place] = np.where(same, limit, np.minimum(scores[:, place], limit))
    return np.where(_used(found), np.maximum(scores, 0), np.float32(-np.inf))


def _groups_of(
    found: Predictions, by: By, groups: npt.NDArray[np.int32] | None
) -> npt.NDArray[np.int32] | None:
    if by == "rank":
        places = np.searchsorted(RANK_STARTS, np.arange(found.k), side="right") - 1
        return np.broadcast_to(places.astype(np.int32), found.columns.shape)
    return None if groups is None else groups[found.columns]


def label_groups(model: Any, by: By) -> npt.NDArray[np.int32] | None:
    """The group of each label whose curve it uses; None where labels have no groups."""
    if by == "frequency":
        from labelgrove.metrics.bins import frequency_bin

        return frequency_bin(model.facts_.frequencies).astype(np.int32)
    if by != "level":
        return None
    from labelgrove.scores.diversity import label_tree

    tree = label_tree(model)
    if tree is None:
        raise ConfigError(f"by: this {model.method} model has no label tree, so no levels")
    return tree.label_depths()


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}: must be one of {', '.join(choices)}, got {value!r}")
