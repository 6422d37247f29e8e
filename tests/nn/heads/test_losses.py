"""Losses per document against scalars in a loop; padding and weights."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from labelgrove.nn.heads.losses import document_losses, full_losses, relevance_weights  # noqa: E402

KINDS = ("bce", "squared_hinge")
REDUCTIONS = ("mean", "sum")


def scalar_loss(logit, target, kind):
    margin = float(logit) if target else -float(logit)
    return np.log1p(np.exp(-margin)) if kind == "bce" else max(0.0, 1 - margin) ** 2


def problem(seed, rows=5, columns=11):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=(rows, columns)) * 2, dtype=torch.float32)
    targets = torch.tensor(rng.random((rows, columns)) < 0.3)
    mask = torch.tensor(rng.random((rows, columns)) < 0.7)
    weights = torch.tensor(rng.random((rows, columns)) * 3, dtype=torch.float32)
    return logits, targets, mask, weights


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_document_losses_are_the_scalars_summed(kind, reduction, weighted):
    logits, targets, mask, weights = problem(0)
    given = document_losses(
        logits,
        targets,
        mask=mask,
        weights=weights if weighted else None,
        kind=kind,
        reduction=reduction,
    )
    for row, value in enumerate(given):
        parts = [
            scalar_loss(logits[row, j], targets[row, j], kind)
            * (float(weights[row, j]) ** weighted)
            for j in range(logits.shape[1])
            if mask[row, j]
        ]
        expected = sum(parts) / (len(parts) if reduction == "mean" else 1)
        assert float(value) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_padding_changes_neither_loss_nor_gradient(kind, reduction):
    logits, targets, mask, weights = problem(1)
    logits.requires_grad_()
    plain = document_losses(
        logits, targets, mask=mask, weights=weights, kind=kind, reduction=reduction
    )
    gradient = torch.autograd.grad(plain.sum(), logits)[0]
    # Padding may hold anything, even infinities that would make 0 * inf.
    padding = torch.full((5, 4), torch.inf, requires_grad=True)
    wide = torch.cat([logits, padding], 1)
    padded = document_losses(
        wide,
        torch.cat([targets, torch.zeros(5, 4, dtype=torch.bool)], 1),
        mask=torch.cat([mask, torch.zeros(5, 4, dtype=torch.bool)], 1),
        weights=torch.cat([weights, torch.full((5, 4), 9.0)], 1),
        kind=kind,
        reduction=reduction,
    )
    assert torch.allclose(padded, plain, rtol=1e-6)
    again, of_padding = torch.autograd.grad(padded.sum(), [logits, padding])
    assert torch.allclose(again, gradient, rtol=1e-6)
    assert of_padding.tolist() == [[0.0] * 4] * 5
    assert not gradient[~mask].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_candidates_costs_nothing(kind):
    logits = torch.ones(1, 3, requires_grad=True)
    off = torch.zeros(1, 3, dtype=torch.bool)
    loss = document_losses(logits, off, mask=off, kind=kind)
    assert loss.tolist() == [0.0]
    assert torch.autograd.grad(loss.sum(), logits)[0].tolist() == [[0.0] * 3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_full_losses_are_document_losses_with_all_targets(kind, reduction):
    rng = np.random.default_rng(2)
    logits = torch.tensor(rng.normal(size=(4, 9)) * 3, dtype=torch.float32, requires_grad=True)
    rows = [[1, 4, 4, 8], [], [0], [2, 3]]  # a node may occur twice; it counts once
    truth = RaggedLabels.from_rows(rows).padded().sort(dim=1).values
    targets = torch.tensor([[column in row for column in range(9)] for row in rows])
    for positive_weights, weights in (
        (None, None),
        (torch.full(truth.shape, 2.5), torch.where(targets, 2.5, 0.5)),
    ):
        extra = {} if weights is None else {"negative_weight": 0.5}
        given = full_losses(
            logits,
            truth,
            positive_weights=positive_weights,
            kind=kind,
            reduction=reduction,
            **extra,
        )
        expected = document_losses(logits, targets, weights=weights, kind=kind, reduction=reduction)
        assert torch.allclose(given, expected, atol=1e-5)
        ours, theirs = (torch.autograd.grad(x.sum(), logits)[0] for x in (given, expected))
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_losses_are_float32_and_relevance_has_weights():
    logits, targets, mask, _ = problem(3)
    assert document_losses(logits.bfloat16(), targets, mask=mask).dtype == torch.float32
    truth = torch.tensor([[1]] * 5)
    assert full_losses(logits.bfloat16(), truth).dtype == torch.float32
    counts = torch.tensor([[3, 0, 1], [0, 0, 0]])
    assert relevance_weights(counts).tolist() == [[3.0, 1.0, 1.0], [1.0] * 3]
    shares = relevance_weights(counts, norm="l1", negative_weight=0.5)
    assert shares.tolist() == [[0.75, 0.5, 0.25], [0.5] * 3]
