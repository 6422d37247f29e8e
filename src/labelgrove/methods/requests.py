"""The arguments of ``predict`` besides the documents, the same for every method."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.aliases import DocumentInput, TableView
from labelgrove.core.arrays import CSR, as_csr
from labelgrove.core.late import sparse
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.inputs import check_k, documents_of
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.fitted import Fitted

if TYPE_CHECKING:
    from labelgrove.evaluation.calibration import Calibration

Allowed: TypeAlias = "Iterable[str] | LabelMask | None"
Threshold: TypeAlias = float | Literal["auto"] | None

DOCUMENTS_AT_ONCE = 256


@dataclass
class PredictionRequest:
    """The arguments of ``predict``: how many labels, which are allowed, what becomes of scores.

    A method searches for ``ranks`` labels within ``mask``; :meth:`answer` does the rest.
    """

    index: LabelIndex
    k: int
    calibration: Calibration | None
    allow: Allowed = None
    deny: Iterable[str] | None = None
    threshold: Threshold = None

    def __post_init__(self) -> None:
        calibration, threshold = self.calibration, self.threshold
        self.k = self.ranks = check_k(self.k)
        self.mask = LabelMask.of(self.index, self.allow, self.deny)
        if threshold == "auto" and calibration is None:
            raise ConfigError(
                "threshold: auto needs a calibrated model and no raw scores; calibrate it "
                "first: labelgrove calibrate MODEL DEV"
            )
        if threshold is not None and threshold != "auto":
            number = isinstance(threshold, (int, float, np.number))
            if not number or isinstance(threshold, bool) or np.isnan(threshold):
                raise ConfigError(f"threshold: must be a number, got {threshold!r}")
        if calibration is not None:
            by_document = threshold == "auto" and calibration.by_document
            if by_document or calibration.reorders:
                self.ranks = max(self.ranks, calibration.places)

    def answer(self, predictions: Predictions) -> Predictions:
        """The predictions as requested."""
        if self.calibration is not None:
            predictions = self.calibration(predictions)
        if self.threshold == "auto":
            assert self.calibration is not None
            predictions = self.calibration.choose(predictions)
        elif self.threshold is not None:
            least, kind = self.threshold, predictions.score_kind
            if least > 1 and kind != "margin":
                raise ConfigError(
                    f"threshold: no label can reach {least:g}, for the scores of this model are at "
                    f"most 1 ({kind})"
                )
            predictions = predictions.above(self.threshold)
        return predictions if predictions.k <= self.k else predictions.top(self.k)


def masked_scores(
    predict: Callable[..., Predictions], X: DocumentInput, labels: Any, *, count: int
) -> npt.NDArray[np.float32] | CSR:
    """Scores of given labels from predictions with a mask, the same as those of ``predict``.

    ``predict(X, k, mask)`` returns raw predictions over ``count`` labels. ``labels`` are columns,
    for a documents x labels array, or a sparse pattern, for a sparse matrix.
    """

    def scores_of(documents: DocumentInput, columns: Any) -> Any:
        mask = LabelMask.from_columns(columns, count)
        return predict(documents, len(columns), mask).to_csr()

    if not sparse.issparse(labels):
        scores: npt.NDArray[np.float32] = scores_of(X, np.unique(labels))[:, labels].toarray()
        return scores
    pattern, documents = as_csr(labels, name="labels"), documents_of(X)
    if pattern.shape != (len(documents), count):
        raise DataError(
            f"labels has shape {pattern.shape}, not {len(documents)} documents x {count} labels"
        )
    values = np.empty(pattern.nnz, np.float32)
    for start in range(0, len(documents), DOCUMENTS_AT_ONCE):
        rows = pattern[start : start + DOCUMENTS_AT_ONCE]
        if rows.nnz == 0:
            continue
        taken = documents.take(slice(start, start + DOCUMENTS_AT_ONCE))
        block = scores_of(taken.plain, np.unique(rows.indices))
        numbers = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        values[pattern.indptr[start] :][: rows.nnz] = block[numbers, rows.indices]
    return sparse.csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)


def probabilities(model: Fitted, X: DocumentInput, k: int | None, options: TableView) -> CSR:
    """Probabilities of the k best labels, or a refusal of scores that are none."""
    calibration = model.calibration_
    if k is None:
        k = 20 if calibration is None else calibration.places
    # Scores of some ensembles are probabilities by themselves.
    own = "probability" if calibration is not None else model.score_kind
    if own in ("probability", None):
        predictions = model.predict(X, k, **options)
        if predictions.score_kind == "probability":
            return predictions.to_csr()
    raise ConfigError(
        f"the scores of this {model.method} model are no probabilities yet; call "
        "model.calibrate(X, y) with documents that it was not trained on, or take its scores: "
        "model.predict(X).to_csr()"
    )
