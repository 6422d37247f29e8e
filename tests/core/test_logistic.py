"""The logistic fit is the optimum of its own penalised loss."""

import numpy as np
import pytest
from scipy.special import expit

from labelgrove.core.logistic import fit_logistic


def problem(seed=0, rows=400):
    random = np.random.default_rng(seed)
    terms = np.column_stack([random.normal(size=(rows, 2)), np.ones(rows)])
    return terms, (random.random(rows) < expit(terms @ [1.5, -0.5, 0.25])).astype(float)


@pytest.mark.parametrize("ridge", [0.0, 0.5, np.array([10.0, 1e-3, 0.0])])
def test_the_gradient_vanishes_at_the_result(ridge):
    terms, targets = problem()
    weights = fit_logistic(terms, targets, ridge)
    gradient = terms.T @ (expit(terms @ weights) - targets) + ridge * weights
    assert np.abs(gradient).max() < 1e-3


def test_a_larger_ridge_makes_smaller_weights():
    terms, targets = problem()
    sizes = [np.abs(fit_logistic(terms, targets, ridge)[0]) for ridge in (0.0, 10.0, 1000.0)]
    assert sizes[0] > sizes[1] > sizes[2] > 0


def test_separable_targets_keep_finite_weights_and_targets_may_be_shares():
    terms = np.column_stack([np.linspace(-1, 1, 20), np.ones(20)])
    weights = fit_logistic(terms, (terms[:, 0] > 0).astype(float), 1e-3)
    assert np.isfinite(weights).all()
    assert 10 < weights[0] < 1000
    shares = np.array([0.25, 0.75])
    weights = fit_logistic(np.eye(2), shares, 0.0)
    np.testing.assert_allclose(expit(weights), shares, rtol=1e-6)
