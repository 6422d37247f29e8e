"""What one call of ``predict`` asks for besides the documents, the same for every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from labelgrove.calibrating.calibration import Calibration
from labelgrove.core.arrays import as_csr
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.masks import LabelMask, columns_of
from labelgrove.methods.base import check_k, checked_inputs
from labelgrove.scores.diversity import diversify, label_clusters
from labelgrove.scores.predictions import Predictions

MinScore: TypeAlias = float | Literal["auto"] | None

# Of each document so many labels are looked at before like ones are pushed back.
DIVERSE_PLACES, DIVERSE_FACTOR = 50, 4
DOCUMENTS_AT_ONCE = 256


@dataclass(frozen=True)
class Request:
    """How many labels, which of them may come, and what becomes of their scores.

    A method searches for ``places`` labels within ``mask`` and hands them to :meth:`answer`.
    """

    model: Any
    k: int
    places: int
    mask: LabelMask | None
    min_score: float | npt.NDArray[np.float32] | None
    diversity: float
    calibration: Calibration | None

    @classmethod
    def of(
        cls,
        model: Any,
        k: int,
        *,
        allow: Any = None,
        deny: Any = None,
        min_score: MinScore = None,
        diversity: float = 0.0,
        raw: bool = False,
    ) -> Request:
        """The checked request that the arguments of ``predict`` describe."""
        k = places = check_k(k)
        calibration: Calibration | None = getattr(model, "calibration_", None)
        if raw:
            calibration = None
        least: float | npt.NDArray[np.float32] | None = None
        if min_score == "auto":
            if calibration is None:
                raise ConfigError(
                    "min_score: auto needs a calibrated model and no raw scores; calibrate it "
                    "first: labelgrove calibrate MODEL --data DEV"
                )
            least = calibration.minimum()
        elif min_score is not None:
            least = _number("min_score", min_score)
        if calibration is not None and calibration.reorders:
            places = max(places, calibration.places)
        if diversity:
            diversity = _number("diversity", diversity)
            if not 0 <= diversity <= 1:
                raise ConfigError(f"diversity: must lie between 0 and 1, got {diversity}")
            places = max(places, DIVERSE_PLACES, DIVERSE_FACTOR * k)
        mask = LabelMask.of(model.index_, allow, deny)
        return cls(model, k, places, mask, least, diversity, calibration)

    def answer(self, found: Predictions) -> Predictions:
        """The found labels as they were asked for."""
        if self.calibration is not None:
            found = self.calibration(found)
        if self.min_score is not None:
            found = found.above(self.min_score)
        if self.diversity:
            found = diversify(found, label_clusters(self.model), self.diversity)
        return found if found.k <= self.k else found.top(self.k)


def score_given(
    model: Any, X: Any, labels: Any, *, raw: bool = False, threads: int | None = None
) -> Any:
    """Scores of given labels by a method that can be masked, the numbers that ``predict`` gives.

    ``labels`` is a list of ids, names or group names, for a documents x labels array; or a sparse
    documents x labels pattern, for a sparse matrix with a score at every stored place.
    """
    if not sparse.issparse(labels):
        columns = columns_of(model.index_, labels, name="labels")
        scores = _scores_of(model, X, np.unique(columns), threads)[:, columns].toarray()
        return scores if raw else probabilities_of(model, scores, columns)
    pattern, X = as_csr(labels, name="labels"), checked_inputs(X)
    if pattern.shape != (len(X), len(model.index_)):
        raise DataError(
            f"labels has shape {pattern.shape}, not {len(X)} documents x {len(model.index_)} labels"
        )
    values = np.empty(pattern.nnz, np.float32)
    for start in range(0, len(X), DOCUMENTS_AT_ONCE):
        rows = pattern[start : start + DOCUMENTS_AT_ONCE]
        if rows.nnz == 0:
            continue
        block = X[start : start + DOCUMENTS_AT_ONCE]
        scores = _scores_of(model, block, np.unique(rows.indices), threads)
        numbers = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        values[pattern.indptr[start] :][: rows.nnz] = scores[numbers, rows.indices]
    if not raw:
        values = probabilities_of(model, values, pattern.indices)
    return sparse.csr_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)


def probabilities_of(model: Any, scores: Any, columns: Any) -> Any:
    """Scores of given label columns as a calibrated model's probabilities, others as they are."""
    calibration: Calibration | None = getattr(model, "calibration_", None)
    return scores if calibration is None else calibration.label_chances(scores, columns)


def _scores_of(model: Any, X: Any, columns: Any, threads: int | None) -> Any:
    mask = LabelMask.from_columns(columns, len(model.index_))
    return model.predict(X, k=len(columns), allow=mask, raw=True, threads=threads).to_csr()


def _number(name: str, value: Any) -> float:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or np.isnan(value):
        raise ConfigError(f"{name}: must be a number, got {value!r}")
    return float(value)
