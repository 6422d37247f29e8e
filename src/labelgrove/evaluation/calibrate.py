"""What calibrations are learnt from: predictions of held-out documents and their true labels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Bools, Int32
from labelgrove.core.params import checked
from labelgrove.data.corpus import Corpus
from labelgrove.data.inputs import (
    check_k,
    check_known_labels,
    documents_of,
    labelled_corpus,
    with_fields,
)
from labelgrove.errors import DataError, warn
from labelgrove.evaluation.calibration import (
    By,
    Calibration,
    Target,
    best_threshold,
    check_target,
    groups_of,
    macro_thresholds,
)
from labelgrove.evaluation.curves import (
    Curve,
    CurveKind,
    Reliability,
    Scale,
    fit_curve,
    reliability,
)
from labelgrove.evaluation.merge_weights import frequency_bins
from labelgrove.evaluation.metrics.evaluation import evaluate
from labelgrove.evaluation.metrics.ranking import Judged, frequency_bin, judge
from labelgrove.evaluation.predictions import Predictions, check_fitted

Kind = Literal["auto", "isotonic", "beta"]

FEWEST_PAIRS, FEWEST_OF_EACH = 200, 10  # of a group, for its own curve
FEWEST_DOCUMENTS = 10
# Documents of a label on average, for macro-F1: labels that happen to have none among the documents
# cost nothing when they are returned, so with few documents thresholds become too low.
FEWEST_PER_LABEL = 3
FOLDS = 5
SEED = 0
SET_METRICS = {
    "precision": "micro-P@set",
    "recall": "micro-R@set",
    "f1": "micro-F1@set",
    "macro_f1": "macro-F1@set",
    "document_f1": "F1@set",
}


def calibrate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    kind: Kind = "auto",
    by: By = "none",
    k: int = 20,
    target: Target = "micro-F1",
    threads: int | None = None,
) -> Calibration:
    """Learns a fitted model's probabilities from documents that it was not trained on.

    From now on the model's ``predict`` returns probabilities (``raw=True``: the scores as before),
    and ``threshold="auto"`` returns sets of labels that suit the ``target``. "micro-F1" and a
    number, which is a precision, choose one threshold; "macro-F1" one for labels of about the same
    training frequency; "document-F1" takes for each document as many of its best labels as have
    the largest expected F1. ``kind="auto"`` takes the kind of curve that does better on documents
    that it was not fitted to. The ``k`` best labels of each document count. The result's ``report``
    compares scores before with probabilities after; these and the sets are measured by
    cross-fitting.

    >>> from labelgrove import Linear
    >>> texts, labels = ["red shoe", "blue hat"] * 20, [["shoes"], ["hats"]] * 20
    >>> model = Linear().fit(texts, labels)
    >>> calibrate(model, texts, labels).kind in ("isotonic", "beta")
    True
    >>> model.predict(["a red shoe"], k=1).score_kind
    'probability'
    """
    check_fitted(model)
    check_target(target)
    checked(kind, Kind, "kind")
    checked(by, By, "by")
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
    notes = [note for note in [model.facts_.warning(corpus), _few(truth, target)] if note]
    for note in notes:
        warn(note)
    inputs = X if isinstance(X, Corpus) else documents_of(documents).plain
    predictions = model.predict(inputs, k=check_k(k), raw=True, threads=threads)
    judged = judge(predictions, truth, unknown=unknown)
    frequencies = model.facts_.frequencies
    groups = frequency_bin(frequencies).astype(np.int32) if by == "frequency" else None
    bins = frequency_bins(frequencies) if target == "macro-F1" else None
    scale = Scale.of(predictions.scores[predictions.used], predictions.score_kind)
    data = _Data(judged, scale, by, groups, target, bins)
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

    judged: Judged
    scale: Scale
    by: By
    groups: Int32 | None
    target: Target
    bins: npt.NDArray[np.int8] | None  # of labels that have a threshold in common

    @property
    def predictions(self) -> Predictions:
        return self.judged.predictions

    @property
    def hits(self) -> Bools:
        return self.judged.hits

    @property
    def used(self) -> Bools:
        return self.predictions.used


def _fit(data: _Data, kind: CurveKind, rows: Bools) -> Calibration:
    """Curves and thresholds from some of the documents."""
    predictions = data.predictions
    chosen = data.used & rows[:, None]
    units = data.scale(predictions.scores)[chosen]
    hits = data.hits[chosen]
    curves: list[Curve | None] = [fit_curve(units, hits, kind)]
    group = groups_of(predictions, data.by, data.groups)
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
    scores, columns = calibration.probabilities(predictions)[chosen], predictions.columns[chosen]
    true = round(int(data.judged.sizes.sum()) * rows.sum() / len(rows))
    threshold = best_threshold(scores, hits, true, data.target)
    own = None
    if data.bins is not None:
        truth = data.judged.truth[rows]
        documents = np.bincount(truth.indices, minlength=truth.shape[1])
        threshold, own = macro_thresholds(
            columns, scores, hits, documents, data.bins, fewest=FEWEST_OF_EACH
        )
    return replace(
        calibration,
        threshold=threshold,
        label_thresholds=own,
        by_document=data.target == "document-F1",
    )


def _crossfit(data: _Data, kind: CurveKind) -> tuple[Reliability, dict[str, float]]:
    """The quality of probabilities and sets on documents that they were not fitted to."""
    judged, rows = data.judged, len(data.predictions)
    fold = np.random.default_rng(SEED).permutation(rows) % FOLDS
    probabilities = np.zeros(data.hits.shape)
    sets = []
    for number in range(FOLDS):
        inside = fold == number
        fitted = _fit(data, kind, ~inside)
        probabilities[inside] = fitted.probabilities(data.predictions)[inside]
        sets.append(fitted.choose(fitted(data.predictions.of_rows(inside))))
    chosen = Predictions.concat(sets).of_rows(np.argsort(np.argsort(fold, kind="stable")))
    measured = evaluate(
        chosen, judged.truth, unknown=judged.unknown, metrics=list(SET_METRICS.values())
    )
    quality = {name: float(np.nan_to_num(measured[m])) for name, m in SET_METRICS.items()}
    quality["labels_per_document"] = float(chosen.counts.mean())
    rounded = {name: round(value, 6) for name, value in quality.items()}
    return reliability(probabilities[data.used], data.hits[data.used]), rounded


def _few(truth: CSR, target: Target) -> str | None:
    """What to say if labels have so few documents that their mean F1 says little."""
    documents = truth.nnz / max(1, len(np.unique(truth.indices)))
    if target != "macro-F1" or documents >= FEWEST_PER_LABEL:
        return None
    return (
        f"macro-F1: the labels of these documents have {documents:.1f} documents on average, so "
        "the sets may have too many labels on other documents; give more documents, or choose "
        "micro-F1 or document-F1"
    )
