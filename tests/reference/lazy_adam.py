"""Row-sparse optimisers as they are written in papers: one number at a time, in double."""

from __future__ import annotations

import math


class LazyAdam:
    """Adam whose weights, moments and decay stand still in rows that an update does not touch."""

    def __init__(self, weights: list[list[float]], *, decay: float = 0.0) -> None:
        self.weights = [list(row) for row in weights]
        self.first = [[0.0] * len(row) for row in weights]
        self.second = [[0.0] * len(row) for row in weights]
        self.updates = 0
        self.decay = decay

    def update(
        self,
        gradients: dict[int, list[float]],
        lr: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        self.updates += 1
        for row, gradient in gradients.items():
            t = self.updates
            for j, g in enumerate(gradient):
                self.first[row][j] = beta1 * self.first[row][j] + (1 - beta1) * g
                self.second[row][j] = beta2 * self.second[row][j] + (1 - beta2) * g * g
                mean = self.first[row][j] / (1 - beta1**t)
                spread = math.sqrt(self.second[row][j] / (1 - beta2**t))
                self.weights[row][j] *= 1 - lr * self.decay
                self.weights[row][j] -= lr * mean / (spread + eps)
