"""Regularised linear classifiers as a general optimiser finds them: slow, exact, primal."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.optimize import minimize

from reference.beam import dense_weights


def level_weights(level, children, terms, width):
    """Nodes x (sparse, then dense features) from chunked weights."""
    dense = [
        level.dense[width * a : width * b].reshape(width, b - a).T.astype(np.float64)
        for a, b in pairwise(children)
    ]
    return np.hstack([dense_weights(level, children, terms), np.vstack(dense)])


def primal_objective(weights, rows, signs, costs, loss, centre=0.0):
    """1/2 |w - w0|^2 + sum of C_i loss_i; rows carry the constant bias feature."""
    margins = signs * (rows @ weights)
    if loss == "logistic":
        losses = np.logaddexp(0.0, -margins)
    else:
        losses = np.maximum(0.0, 1.0 - margins) ** (2 if loss == "squared_hinge" else 1)
    return 0.5 * ((weights - centre) ** 2).sum() + (costs * losses).sum()


def solve(rows, signs, costs, loss, centre=0.0):
    """Weights (bias weight last column) of one label; for the smooth losses only."""

    def gradient(weights):
        margins = signs * (rows @ weights)
        if loss == "logistic":
            slopes = -1.0 / (1.0 + np.exp(margins))
        else:
            slopes = -2.0 * np.maximum(0.0, 1.0 - margins)
        return weights - centre + rows.T @ (costs * slopes * signs)

    start = np.zeros(rows.shape[1]) + centre
    found = minimize(
        primal_objective,
        start,
        args=(rows, signs, costs, loss, centre),
        jac=lambda weights, *_: gradient(weights),
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9},
    )
    return found.x
