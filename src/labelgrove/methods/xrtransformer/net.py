"""XR-Transformer's network: an encoder under one level of a label tree at a time.

A level's head scores a document on the children of the nodes above that were shortlisted for it;
the first level is scored on all its nodes. Which nodes above these are comes with the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.arrays import CSR, Float32
from labelgrove.core.params import Params, param
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree
from labelgrove.nn.batches.packing import PackedBatch, PackedBatches
from labelgrove.nn.batches.padded import Batch, Batches
from labelgrove.nn.heads.candidates import (
    TreeIndex,
    first_occurrences,
    occurrences,
    shortlist,
    valid_nodes,
)
from labelgrove.nn.heads.layers import (
    LabelTable,
    LogitForm,
    full_logits,
    per_level,
    shortlist_logits,
)
from labelgrove.nn.heads.losses import LossKind, document_losses, full_losses, relevance_weights
from labelgrove.nn.heads.ragged import RaggedLabels
from labelgrove.nn.heads.rows import RowTable
from labelgrove.nn.network import labels_of
from labelgrove.nn.training.params import LoopParams

FIRST_STD = 0.02  # of weights that nothing is known of


@dataclass
class XrParams(Params):
    """XR-Transformer's levels; defaults are the public code's, the paper's forms are switches.

    A list has one value per level that is fine-tuned.

    >>> XrParams(relevance="l1", alpha=0.25, reduction="sum").validate().bootstrap
    'weighted-linear'
    """

    max_clusters: int = param(
        32_768, ge=1, help="levels of the tree with more nodes than this are not fine-tuned"
    )
    steps: list[int] = param(
        [],
        ge=1,
        help="updates on each level; empty = half of the training on the last level, the rest "
        "shared by the others",
    )
    lr: list[float] = param([], gt=0, help="learning rate of each level; empty = training.lr")
    negatives: Literal["tfn", "man", "tfn+man"] = param(
        "tfn+man",
        help="whose children are candidates: true nodes of the level above (tfn), those predicted "
        "for the document (man), or both",
    )
    matcher: Literal["linear", "head", "mean"] = param(
        "linear",
        help="who predicts the nodes of a level: a linear model on tf-idf and text vectors, the "
        "level's own head, or the mean of both",
    )
    kept: int | list[int] = param(
        20, ge=1, help="nodes predicted per document on each level but the last"
    )
    bootstrap: Literal["linear", "weighted-linear", "inherit", "none"] = param(
        "weighted-linear",
        help="where a level's head begins: at a linear model on the text vectors of the level "
        "before (weighted: by how many labels lie below a node), at its parents' weights, anywhere",
    )
    bootstrap_C: float = param(1.0, gt=0, help="C of that linear model (code: 100, not scaled)")
    bootstrap_scaled: bool = param(
        True,
        help="whether this C is for vectors of length 1; false: for the encoder's as they are",
    )
    bootstrap_first: bool = param(
        False, help="whether the first level begins so, too, with the vectors before fine-tuning"
    )
    standardise: bool = param(
        False,
        help="whether text vectors are shifted and scaled as the pretrained encoder's ask for: "
        "each number 0 on average and 1 in spread",
    )
    loss: LossKind = param("squared_hinge", help="loss of a document on one node")
    relevance: Literal["count", "l1", "none"] = param(
        "count",
        help="cost of a true node: how many of the document's labels lie below it (code), their "
        "share (paper), or 1",
    )
    alpha: float = param(1.0, gt=0, help="cost of a node that is not true")
    reduction: Literal["mean", "sum"] = param(
        "mean", help="of a document's losses over its candidates: mean (code), sum (paper)"
    )
    dropout: float = param(0.1, ge=0, le=1, help="share of the text vector dropped in training")
    max_candidates: int | None = param(
        None, ge=1, help="most nodes scored per training document, true ones first; none = all"
    )
    row_table_from: int = param(
        300_000, ge=0, help="from so many nodes on, an update touches only the rows in use"
    )
    logits: LogitForm = param("auto", help="how candidates are scored; all give the same logits")


def fine_tuned_levels(tree: LabelTree, max_clusters: int) -> int:
    """How many of a tree's levels, from the first, have at most so many nodes.

    >>> fine_tuned_levels(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]), 2)
    1
    """
    count = sum(width <= max_clusters for width in tree.widths)
    if count == 0:
        raise ConfigError(
            f"heads.max_clusters: the tree's first level has {tree.widths[0]:,} nodes already, "
            f"more than {max_clusters:,}; raise it, or lower tree.max_leaf_size or tree.top_width"
        )
    return count


def level_training(params: XrParams, training: LoopParams, levels: int) -> list[LoopParams]:
    """What the loop shall do on each level; the schedule begins anew on each.

    >>> [loop.max_steps for loop in level_training(XrParams(), LoopParams(max_steps=10), 3)]
    [2, 3, 5]
    """
    shares = [1.0] if levels == 1 else [0.5 / (levels - 1)] * (levels - 1) + [0.5]
    if params.steps:
        steps: Sequence[int | None] = per_level(params.steps, levels, "steps")
    elif training.max_steps is not None:
        ends = [round(training.max_steps * sum(shares[: n + 1])) for n in range(levels)]
        steps = [max(1, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    else:
        steps = [None] * levels
    rates = per_level(params.lr or training.lr, levels, "lr")
    return [
        replace(training, epochs=training.epochs * share, max_steps=count, lr=rate)
        for share, count, rate in zip(shares, steps, rates, strict=True)
    ]


def level_tree(tree: LabelTree, level: int) -> LabelTree:
    """The nodes of a level under those of the level above, as a tree of their own.

    >>> level_tree(LabelTree([[0, 0], [0, 0, 1], [0, 1, 2, 2]], [0, 1, 2, 3]), 2)
    LabelTree(3-4)
    """
    nodes = np.arange(tree.widths[level])
    if level == 0:
        return LabelTree([tree.parents[0]], nodes)
    return LabelTree([np.zeros(tree.widths[level - 1], np.int32), tree.parents[level]], nodes)


def nodes_of_labels(labels: CSR, tree: LabelTree, level: int) -> CSR:
    """Documents x nodes: the node above each label of a document, as often as it has labels there.

    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1])
    >>> nodes_of_labels(sparse.csr_array([[1, 0, 1]]), tree, 0).indices.tolist()
    [0, 0]
    """
    above = tree.leaf_positions
    for parents in tree.parents[:level:-1]:
        above = parents[above]
    return sparse.csr_array(
        (np.ones(labels.nnz, np.float32), above[labels.indices], labels.indptr),
        shape=(labels.shape[0], tree.widths[level]),
    )


@dataclass(frozen=True)
class LevelBatch:
    """A batch with what a level's head needs: true nodes, and the shortlisted nodes above."""

    batch: Batch | PackedBatch
    true: RaggedLabels
    above: RaggedLabels | None

    @property
    def rows(self) -> Any:
        return self.batch.rows

    @property
    def tokens(self) -> int:
        return self.batch.tokens

    def __len__(self) -> int:
        return len(self.batch)

    def to(self, device: str | torch.device) -> LevelBatch:
        above = None if self.above is None else self.above.to(device)
        return LevelBatch(self.batch.to(device), self.true.to(device), above)

    def pin(self) -> LevelBatch:
        above = None if self.above is None else self.above.pin()
        return LevelBatch(self.batch.pin(), self.true.pin(), above)


class LevelBatches:
    """Batches that bring along their documents' rows of ``true`` and ``above``."""

    def __init__(self, batches: Batches | PackedBatches, true: CSR, above: CSR | None) -> None:
        self.batches = batches
        self.true = true
        self.above = above

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[LevelBatch]:
        """As :meth:`Batches.epoch`."""
        for batch in self.batches.epoch(number, start=start):
            above = None if self.above is None else labels_of(self.above, batch.rows)
            yield LevelBatch(batch, labels_of(self.true, batch.rows), above)


class XrHead(nn.Module):
    """The head of one level: a weight vector and a bias for each of its nodes.

    ``tree`` is a :func:`level_tree`.

    >>> head = XrHead(4, LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2]))
    >>> true, above = RaggedLabels.from_rows([[2]]), RaggedLabels.from_rows([[1]])
    >>> head.loss([torch.ones(1, 4)], true, above)[1]["candidates"].item()
    1.0
    """

    def __init__(self, width: int, tree: LabelTree, params: XrParams | None = None) -> None:
        super().__init__()
        self.params = (params or XrParams()).validate("heads")
        self.index = TreeIndex(tree)
        self.first = len(tree.parents) == 1
        self.table: LabelTable | RowTable
        if tree.labels >= self.params.row_table_from:
            self.table = RowTable(tree.labels, width, bias=True, std=FIRST_STD)
        else:
            self.table = LabelTable(tree.labels, width)
            nn.init.normal_(self.table.weight, std=FIRST_STD)

    @torch.no_grad()
    def start_from(self, weights: Any, bias: Any) -> None:
        """Begins at the weights (nodes x width) and biases of another model."""
        for target, values in ((self.table.weight, weights), (self.table.bias, bias)):
            assert target is not None
            target.copy_(torch.from_numpy(np.array(values, np.float32)))

    def loss(
        self, states: Sequence[Tensor], true: RaggedLabels, above: RaggedLabels | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss of the documents, and what to watch of it.

        ``true`` names the node above each label, so a node may be there several times; ``above``
        are the nodes whose children are candidates (None on the first level: all are).
        """
        params = self.params
        text = functional.dropout(states[-1], params.dropout, self.training)
        truth = self.index.true_nodes(true)
        if self.first:
            losses = full_losses(
                full_logits(text, self.table),
                truth[0],
                positive_weights=self._costs(_counts(truth[0])),
                negative_weight=params.alpha,
                kind=params.loss,
                reduction=params.reduction,
            )
            size = torch.full_like(losses, float(self.index.widths[0]))
        else:
            assert above is not None
            nodes = above.padded()
            there = valid_nodes(nodes)
            listed = shortlist(
                self.index,
                1,
                nodes.masked_fill(~there, 0),
                there,
                truth,
                most=params.max_candidates,
            )
            logits = shortlist_logits(text, self.table, listed.ids, listed.mask, form=params.logits)
            losses = document_losses(
                logits,
                listed.targets,
                mask=listed.mask,
                weights=self._costs(occurrences(truth[1], listed.ids) * listed.targets),
                kind=params.loss,
                reduction=params.reduction,
            )
            size = listed.mask.sum(1).float()
        mean = losses.mean()
        return mean, {"loss": mean.detach(), "candidates": size.mean()}

    def _costs(self, counts: Tensor) -> Tensor:
        """Costs of nodes of which so many true labels are below; rows hold all true nodes."""
        norm: Literal["l1", "none"] = "l1" if self.params.relevance == "l1" else "none"
        if self.params.relevance == "none":
            counts = counts.clamp(max=1)
        return relevance_weights(counts, norm=norm, negative_weight=self.params.alpha)

    def weights(self) -> tuple[Float32, Float32]:
        """Weights (nodes x width) and biases of the nodes."""
        assert self.table.bias is not None
        found = self.table.weight.detach(), self.table.bias.detach()
        return found[0].float().cpu().numpy(), found[1].float().cpu().numpy()


def _counts(truth: Tensor) -> Tensor:
    """How often each node of sorted rows is there, where it is there first; elsewhere 0."""
    return occurrences(truth, truth) * (first_occurrences(truth) & valid_nodes(truth))
