"""A head over all labels, literally: every logit, autograd, and one step per batch.

The step is Adam's without its first moment; the second moment is one number per row, the running
mean of the mean square of its gradient.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import softplus


class DenseHead:
    """Weights and biases with gradients as large as they are."""

    def __init__(self, weight, bias):
        self.weight = weight.detach().clone().requires_grad_()
        self.bias = bias.detach().clone().requires_grad_()
        self.weight_squares = [0.0] * len(weight)
        self.bias_squares = [0.0] * len(weight)
        self.updates = 0

    def loss(self, text, rows, *, scale=1.0):
        """The mean over documents of binary cross-entropy summed over labels."""
        logits = text @ self.weight.T + self.bias
        total = 0.0
        for document, positives in enumerate(rows):
            for label in range(len(self.weight)):
                z = logits[document, label]
                total = total + softplus(-z if label in positives else z)
        return scale * total / len(rows)

    def learn(self, loss, *, lr, weight_decay=0.0, beta2=0.999, eps=1e-8):
        """One step by the gradient of ``loss``."""
        by_weight, by_bias = torch.autograd.grad(loss, [self.weight, self.bias], retain_graph=True)
        self.updates += 1

        def root(squares, row, square):
            squares[row] = beta2 * squares[row] + (1 - beta2) * float(square)
            return math.sqrt(squares[row] / (1 - beta2**self.updates)) + eps

        with torch.no_grad():
            for row in range(len(self.weight)):
                spread = root(self.weight_squares, row, (by_weight[row] ** 2).mean())
                self.weight[row] *= 1 - lr * weight_decay
                self.weight[row] -= lr * by_weight[row] / spread
                spread = root(self.bias_squares, row, by_bias[row] ** 2)
                self.bias[row] -= lr * by_bias[row] / spread
