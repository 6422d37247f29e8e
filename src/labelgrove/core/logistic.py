"""Logistic regression of a few weights on many rows, by Newton's method."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labelgrove.core.late import expit

Float64 = npt.NDArray[np.float64]

NEWTON_STEPS = 100


def fit_logistic(rows: Float64, targets: Float64, ridge: float | Float64) -> Float64:
    """The weights for which ``expit(rows @ weights)`` fits ``targets`` (shares in [0, 1]) best.

    ``ridge`` penalises half the squared weights, each by its own number if it is an array. It
    keeps weights finite where the rows separate the targets.
    """
    weights = np.zeros(rows.shape[1])
    penalty = np.broadcast_to(np.asarray(ridge, np.float64), weights.shape)

    def loss(candidate: Float64) -> float:
        margins = rows @ candidate
        errors = (np.logaddexp(0.0, margins) - targets * margins).sum()
        return float(errors + 0.5 * (penalty * candidate**2).sum())

    current = loss(weights)
    for _ in range(NEWTON_STEPS):
        shares = expit(rows @ weights)
        slope = rows.T @ (shares - targets) + penalty * weights
        curvature = (rows * (shares * (1 - shares))[:, None]).T @ rows + np.diag(penalty)
        step = np.linalg.solve(curvature, slope)
        size = 1.0  # far from the optimum, a whole Newton step may jump over it
        while (new := loss(weights - size * step)) > current and size > 1e-6:
            size /= 2
        if new > current:
            break
        weights = weights - size * step
        if current - new < 1e-9 * max(1.0, abs(current)):
            break
        current = new
    return weights
