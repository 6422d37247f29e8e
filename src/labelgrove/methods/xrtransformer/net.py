"""XR-Transformer's network: an encoder with a head for one level of a label tree at a time.

A level's head scores a document on the children of the nodes shortlisted for it on the level above;
the first level is scored on all its nodes. Batches bring the shortlisted nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.arrays import CSR, Array, Float32, Int32, Int64, entry_keys
from labelgrove.core.late import sparse
from labelgrove.core.params import Params, param
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree
from labelgrove.nn.batches import Batches, PackedBatches
from labelgrove.nn.heads import candidates as lists
from labelgrove.nn.heads import layers as scoring
from labelgrove.nn.heads import losses as costing
from labelgrove.nn.heads.candidates import RaggedLabels
from labelgrove.nn.heads.rows import RowTable
from labelgrove.nn.network import LabelledBatch, LabelledBatches, labels_of
from labelgrove.nn.training.params import TrainingParams

FIRST_STD = 0.02  # of random weights


@dataclass
class XrParams(Params):
    """XR-Transformer's levels; defaults follow the published code, switches give the paper's forms.

    A list has one value per level that is fine-tuned.
    """

    max_clusters: int = param(32_768, ge=1, help="fine-tune levels with at most this many nodes")
    steps: list[int] = param(
        [],
        ge=1,
        help="updates per level, at most training.max_steps in all; empty = half on the last "
        "level, the rest on the others",
    )
    negatives: Literal["tfn", "man", "tfn+man"] = param(
        "tfn+man",
        help="whose children are candidates: those of the true nodes of the level above (tfn), of "
        "the nodes predicted for the document (man), or of both",
    )
    kept: int | list[int] = param(20, ge=1, help="nodes predicted on each level but the last")
    bootstrap: Literal["linear", "weighted-linear", "cost-linear", "none"] = param(
        "weighted-linear",
        help="where a level's head starts: from a linear model on the text vectors of the level "
        "before (weighted: errors cost the number of labels below a node; cost: their share, and "
        "alpha for other nodes, as in the paper), or at random (none)",
    )
    bootstrap_C: float = param(1.0, gt=0, help="C of that linear model (code: 100, not scaled)")
    bootstrap_scaled: bool = param(True, help="this C is for vectors of length 1, not for raw ones")
    bootstrap_first: bool = param(
        True, help="also bootstrap level 1, from pretrained vectors; published: false"
    )
    standardise: bool = param(
        True, help="text vectors start at mean 0 and deviation 1; published: false"
    )
    loss: costing.LossKind = param("squared_hinge", help="loss of a document on one node")
    relevance: Literal["count", "l1", "none"] = param(
        "count", help="cost of a true node: its number of labels (code), their share (paper), or 1"
    )
    alpha: float = param(1.0, gt=0, help="cost of a node that is not true")
    reduction: Literal["mean", "sum"] = param(
        "mean", help="how a document's losses over its candidates add up: mean (code), sum (paper)"
    )
    l2: float = param(
        0.0,
        ge=0,
        help="the paper's lambda: half of it times the squared weights of a level is added to the "
        "sum of all documents' losses; for reduction=sum",
    )
    dropout: float = param(0.1, ge=0, le=1, help="share of the text vector dropped in training")
    max_candidates: int | None = param(None, ge=1, help="most nodes per document, true ones first")
    row_table_from: int = param(300_000, ge=0, help="tables this large update only the rows in use")


def fine_tuned_levels(tree: LabelTree, max_clusters: int) -> int:
    """How many of a tree's levels, from the first, have at most ``max_clusters`` nodes."""
    count = sum(width <= max_clusters for width in tree.widths)
    if count == 0:
        raise ConfigError(
            f"heads.max_clusters: the tree's first level has {tree.widths[0]:,} nodes already, "
            f"more than {max_clusters:,}; raise it, or lower tree.max_leaf_size or tree.top_width"
        )
    return count


def level_training(params: XrParams, training: TrainingParams, levels: int) -> list[TrainingParams]:
    """The loop's parameters for each level; each level has its own schedule."""
    shares = [1.0] if levels == 1 else [0.5 / (levels - 1)] * (levels - 1) + [0.5]
    given: list[int] = scoring.per_level(params.steps, levels, "steps") if params.steps else []
    most = training.max_steps
    steps: Sequence[int | None] = given or [None] * levels
    if most is not None and (not given or most < sum(given)):
        parts = given or shares
        ends = [round(most * sum(parts[: n + 1]) / sum(parts)) for n in range(levels)]
        steps = [max(1, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    return [
        replace(training, epochs=training.epochs * share, max_steps=count)
        for share, count in zip(shares, steps, strict=True)
    ]


def level_tree(tree: LabelTree, level: int) -> LabelTree:
    """The nodes of a level below those of the level above, as a separate tree."""
    nodes = np.arange(tree.widths[level])
    if level == 0:
        return LabelTree([tree.parents[0]], nodes)
    return LabelTree([np.zeros(tree.widths[level - 1], np.int32), tree.parents[level]], nodes)


def nodes_of_labels(labels: CSR, tree: LabelTree, level: int) -> CSR:
    """Documents x nodes: the node above each label of a document; nodes repeat for each label."""
    above = tree.leaf_positions
    for parents in tree.parents[:level:-1]:
        above = parents[above]
    return sparse.csr_array(
        (np.ones(labels.nnz, np.float32), above[labels.indices], labels.indptr),
        shape=(labels.shape[0], tree.widths[level]),
    )


def documents_scoring(true: CSR, above: CSR | None, parents: Int32) -> Int64:
    """How many documents each node of a level is scored for.

    ``true`` has the nodes above the documents' labels, ``above`` the nodes whose children are
    candidates; None on the first level. A true node is scored even if it is below none of these.
    """
    documents, nodes = true.shape
    if above is None:
        return np.full(nodes, documents, np.int64)
    chosen = entry_keys(above)
    rows, own = np.divmod(np.unique(entry_keys(true)), nodes)
    missing = ~np.isin(rows * above.shape[1] + parents[own], chosen)
    counts = np.bincount(above.indices, minlength=above.shape[1])[parents]
    scored: Int64 = counts + np.bincount(own[missing], minlength=nodes)
    return scored


@dataclass(frozen=True)
class LevelBatch(LabelledBatch):
    """A batch whose labels are the true nodes of a level, with the shortlisted nodes above."""

    above: RaggedLabels | None


class LevelBatches(LabelledBatches):
    """Batches with their documents' rows of ``true`` and ``above``."""

    def __init__(self, batches: Batches | PackedBatches, true: CSR, above: CSR | None) -> None:
        super().__init__(batches, true)
        self.above = above

    def epoch(self, number: int, *, start: int = 0) -> Iterator[LevelBatch]:
        """Like :meth:`Batches.epoch`."""
        for batch in super().epoch(number, start=start):
            above = None if self.above is None else labels_of(self.above, batch.rows)
            yield LevelBatch(batch.batch, batch.labels, above)


class XrHead(nn.Module):
    """The head of one level: a weight vector and a bias for each of its nodes.

    ``tree`` is a :func:`level_tree`; ``scored`` is from :func:`documents_scoring`, for ``l2``.
    """

    scored: Tensor

    def __init__(
        self, width: int, tree: LabelTree, params: XrParams | None, *, scored: Int64 | None = None
    ) -> None:
        super().__init__()
        counts = torch.ones(1) if scored is None else torch.from_numpy(np.maximum(scored, 1))
        self.register_buffer("scored", counts, persistent=False)
        self.params = (params or XrParams()).validate("heads")
        self.index = lists.TreeIndex(tree)
        self.first = len(tree.parents) == 1
        self.table: scoring.LabelTable | RowTable
        if tree.labels >= self.params.row_table_from:
            self.table = RowTable(tree.labels, width, bias=True, std=FIRST_STD)
        else:
            self.table = scoring.LabelTable(tree.labels, width)
            nn.init.normal_(self.table.weight, std=FIRST_STD)

    @torch.no_grad()
    def start_from(self, weights: Array, bias: Array) -> None:
        """Starts from the weights (nodes x width) and biases of another model."""
        for target, values in ((self.table.weight, weights), (self.table.bias, bias)):
            assert target is not None
            target.copy_(torch.from_numpy(np.array(values, np.float32)))

    def loss(
        self, states: Sequence[Tensor], true: RaggedLabels, above: RaggedLabels | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss of the documents, and statistics.

        ``true`` has the node above each label, so nodes may repeat; ``above`` are the nodes whose
        children are candidates (None on the first level, where all nodes are).
        """
        params = self.params
        text = functional.dropout(states[-1], params.dropout, self.training)
        truth = self.index.true_nodes(true)
        if self.first:
            losses = costing.full_losses(
                scoring.full_logits(text, self.table),
                truth[0],
                positive_weights=self._costs(_counts(truth[0])),
                negative_weight=params.alpha,
                kind=params.loss,
                reduction=params.reduction,
            )
            if params.l2:
                everything = torch.arange(self.index.widths[0], device=text.device)
                losses = losses + self._penalties(everything).sum()
            size = torch.full_like(losses, float(self.index.widths[0]))
        else:
            assert above is not None
            nodes = above.padded()
            mask = lists.valid_nodes(nodes)
            shortlisted = nodes.masked_fill(~mask, 0)
            listed = lists.shortlist(
                self.index, 1, shortlisted, mask, truth, most=params.max_candidates
            )
            logits = scoring.shortlist_logits(text, self.table, listed.ids, listed.mask)
            counts = lists.occurrences(truth[1], listed.ids) * listed.targets
            losses = costing.document_losses(
                logits,
                listed.targets,
                mask=listed.mask,
                weights=self._costs(counts),
                kind=params.loss,
                reduction=params.reduction,
            )
            if params.l2:
                used, places = scoring.used_rows(listed.ids, listed.mask, self.index.widths[-1])
                losses = losses + (self._penalties(used)[places] * listed.mask).sum(1)
            size = listed.mask.sum(1).float()
        mean = losses.mean()
        return mean, {"loss": mean.detach(), "candidates": size.mean()}

    def _penalties(self, nodes: Tensor) -> Tensor:
        """What each document that a node is scored for pays for the node's weights.

        Together these documents pay ``l2`` / 2 times the squared weights. So an update needs the
        rows of its own candidates only.
        """
        squares = self.table.rows(nodes).float().square().sum(1)
        return 0.5 * self.params.l2 * squares / self.scored[nodes]

    def _costs(self, counts: Tensor) -> Tensor:
        """Costs of nodes by the number of true labels below them; rows have all true nodes."""
        norm: Literal["l1", "none"] = "l1" if self.params.relevance == "l1" else "none"
        if self.params.relevance == "none":
            counts = counts.clamp(max=1)
        return costing.relevance_weights(counts, norm=norm, negative_weight=self.params.alpha)

    def weights(self) -> tuple[Float32, Float32]:
        """Weights (nodes x width) and biases of the nodes."""
        assert self.table.bias is not None
        return scoring.as_numpy(self.table.weight), scoring.as_numpy(self.table.bias)


def _counts(truth: Tensor) -> Tensor:
    """How often each node of sorted rows occurs, at its first occurrence; 0 elsewhere."""
    return lists.occurrences(truth, truth) * (
        lists.first_occurrences(truth) & lists.valid_nodes(truth)
    )
