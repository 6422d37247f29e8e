"""Small random trees, label sets and layer states for tests of the neural parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from labelgrove.labels.tree import LabelTree
from labelgrove.methods.cascadexml.net import CascadeNet, CascadeParams
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams


def random_tree(rng: np.random.Generator, widths: list[int]) -> LabelTree:
    """A tree with these level widths whose nodes have very different numbers of children."""
    parents, above = [], 1
    for width in widths:
        cuts = np.sort(rng.choice(np.arange(1, width), above - 1, replace=False))
        parents.append(np.searchsorted(cuts, np.arange(width), side="right"))
        above = width
    return LabelTree(parents, rng.permutation(widths[-1]))


def random_labels(
    rng: np.random.Generator, documents: int, labels: int, most: int
) -> list[list[int]]:
    """Up to ``most`` label columns per document, some documents without any."""
    counts = rng.integers(0, most + 1, documents)
    return [rng.choice(labels, count, replace=False).tolist() for count in counts]


def random_states(
    rng: np.random.Generator, count: int, documents: int, width: int
) -> list[torch.Tensor]:
    """Layer states that take gradients."""
    return [
        torch.tensor(rng.normal(size=(documents, width)), dtype=torch.float32, requires_grad=True)
        for _ in range(count)
    ]


def randomise(net: torch.nn.Module, rng: np.random.Generator, scale: float = 0.5) -> None:
    """Weights and biases large enough that logits differ clearly."""
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.tensor(rng.normal(size=parameter.shape) * scale))


def light_problem(seed: int, **switches):
    """LightXML's network over groups: the labels of each, the true labels, and states."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, [9, 40])
    params = LightXmlParams(layers=3, bottleneck=4, dropout=0.0)
    params.set_params(**({"groups_kept": 3} | switches))
    net = LightXmlNet(6, 40, tree, params)
    randomise(net, rng)
    rows = random_labels(rng, 5, 40, 6)
    groups = [
        [int(tree.leaf_labels[p]) for p in range(40) if tree.parents[1][p] == g] for g in range(9)
    ]
    return net, groups, rows, random_states(rng, 3, 5, 6)


def cascade_problem(seed: int, *, widths: Sequence[int] = (4, 11, 45), **switches):
    """CascadeXML's network: its tree, the true labels of documents, and states."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, list(widths))
    given = {"kept": [2, 3][: len(widths) - 1], "dropout": 0.0, "mix_dropout": 0.0}
    net = CascadeNet(6, tree, CascadeParams(**(given | switches)))
    randomise(net, rng)
    rows = random_labels(rng, 5, widths[-1], 6)
    return net, tree, rows, random_states(rng, sum(net.joined), 5, 6)


def same_gradients(one: torch.Tensor, other: torch.Tensor, inputs: list[torch.Tensor]) -> bool:
    """Whether two losses have the same gradients."""
    ours = torch.autograd.grad(one, inputs, retain_graph=True, materialize_grads=True)
    theirs = torch.autograd.grad(other, inputs, retain_graph=True, materialize_grads=True)
    return all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs, strict=True))
