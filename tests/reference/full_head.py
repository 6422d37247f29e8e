"""A head over all labels, literally: every logit, autograd, and one Adagrad step per batch.

The rows' sum of squares is one number: the mean of a gradient's squares, added up over the steps.
"""

from __future__ import annotations

import torch
from torch.nn.functional import softplus


class DenseHead:
    """Weights and biases with gradients as large as they are."""

    def __init__(self, weight, bias):
        self.weight = weight.detach().clone().requires_grad_()
        self.bias = bias.detach().clone().requires_grad_()
        self.weight_sums = torch.zeros(len(weight))
        self.bias_sums = torch.zeros(len(weight))

    def loss(self, text, rows, *, costs=None, scale=1.0):
        """The mean over documents of binary cross-entropy summed over labels."""
        logits = text @ self.weight.T + self.bias
        total = 0.0
        for document, positives in enumerate(rows):
            for label in range(len(self.weight)):
                z = logits[document, label]
                if label in positives:
                    cost = 1.0 if costs is None else float(costs[label])
                    total = total + cost * softplus(-z)
                else:
                    total = total + softplus(z)
        return scale * total / len(rows)

    def learn(self, loss, *, lr, weight_decay=0.0, eps=1e-8):
        """One step by the gradient of ``loss``; returns that of every other leaf untouched."""
        by_weight, by_bias = torch.autograd.grad(loss, [self.weight, self.bias], retain_graph=True)
        with torch.no_grad():
            for row in range(len(self.weight)):
                self.weight_sums[row] += (by_weight[row] ** 2).mean()
                self.bias_sums[row] += by_bias[row] ** 2
                self.weight[row] *= 1 - lr * weight_decay
                root = self.weight_sums[row].sqrt() + eps
                self.weight[row] -= lr * by_weight[row] / root
                self.bias[row] -= lr * by_bias[row] / (self.bias_sums[row].sqrt() + eps)
