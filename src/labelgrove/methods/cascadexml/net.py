"""CascadeXML's network: coarse label clusters read early layers, labels the last, all at once.

Every level scores only what the level above kept. In training, true nodes are brought into the
lists; at prediction nobody knows them. A level's loss reaches the layers it reads and those below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.arrays import CSR, Float32
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.cascadexml.params import CascadeParams
from labelgrove.nn.heads.allowed import AllowedNodes
from labelgrove.nn.heads.candidates import (
    Candidates,
    TreeIndex,
    best,
    contains,
    favour,
    found_labels,
    shortlist,
)
from labelgrove.nn.heads.layers import (
    LabelTable,
    NodeLogit,
    Rows,
    TopLabels,
    full_logits,
    log_odds,
    per_level,
    shortlist_logits,
    top_labels,
)
from labelgrove.nn.heads.losses import document_losses
from labelgrove.nn.heads.ragged import RaggedLabels

ROWS_PER_COPY = 1 << 16


class Level(NamedTuple):
    """What one level made of a batch: its candidates, their logits, and what it kept of them."""

    listed: Candidates
    logits: Tensor
    kept: Tensor
    kept_mask: Tensor
    kept_logits: Tensor


class CascadeNet(nn.Module):
    """From pooled layer states to labels, level by level down a tree.

    The first two states are the first level's, then comes one per level: see
    :func:`cascade_layers`. ``table`` brings a label table for the last level, its rows in the order
    of the tree's leaves.

    >>> net = CascadeNet(4, LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]))
    >>> net.predict([torch.ones(1, 4)] * 3, k=2).columns.shape
    torch.Size([1, 2])
    """

    def __init__(
        self,
        width: int,
        tree: LabelTree,
        params: CascadeParams | None = None,
        *,
        table: Rows | None = None,
    ) -> None:
        super().__init__()
        self.params = (params or CascadeParams()).validate("cascadexml")
        self.index = TreeIndex(tree)
        levels = len(tree.widths)
        self.kept = per_level(self.params.kept, levels - 1, "kept")
        self.dropout = per_level(_dropouts(self.params.dropout, levels), levels, "dropout")
        self.weights = per_level(self.params.level_weights or 1.0, levels, "level_weights")
        self.mix = nn.Linear(2 * width, width)
        self.text_width = width
        tables: list[Any] = [LabelTable(nodes, width) for nodes in tree.widths[:-1]]
        tables.append(table or LabelTable(tree.labels, width))
        self.tables = nn.ModuleList(tables)
        if tuple(tables[-1].weight.shape) != (tree.labels, width):
            raise ConfigError(
                f"the label table must be {tree.labels} x {width}, "
                f"got {tuple(tables[-1].weight.shape)}"
            )

    @torch.no_grad()
    def start_from(self, labels: CSR) -> None:
        """Sets the biases by the training documents' labels, unless ``priors`` is off.

        On the first level every document is scored on every node. Below, a node is scored where its
        parent is kept: in as many documents as a parent is on average, and where it is true.
        """
        if not self.params.priors:
            return
        kept = [1.0] + [k / w for k, w in zip(self.kept, self.index.widths, strict=False)]
        tables: Any = self.tables
        for table, bearers, share in zip(tables, self.index.bearers(labels), kept, strict=True):
            scored = np.maximum(min(share, 1.0) * labels.shape[0], bearers)
            table.bias.copy_(log_odds(bearers, scored))

    def loss(
        self, states: Sequence[Tensor], positives: RaggedLabels
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss of the documents, and what to watch of each level.

        ``recall.1`` is the share of true labels whose cluster the first level would keep by itself,
        of lists with the true nodes brought in; :meth:`shortlist_recall` is without that.
        """
        truth = self.index.true_nodes(positives)
        levels = self._levels(states, truth, dropout=self.training)
        stats: dict[str, Tensor] = {}
        losses, sizes = [], []
        for number, level in enumerate(levels):
            listed = level.listed
            losses.append(
                document_losses(
                    level.logits,
                    listed.targets,
                    mask=listed.mask,
                    reduction=self.params.reduction,
                )
            )
            sizes.append(listed.mask.sum(1))
            stats[f"loss.{number + 1}"] = losses[-1].detach().mean()
            stats[f"candidates.{number + 1}"] = sizes[-1].float().mean()
            if number < len(self.kept):
                found = self._unforced(level, self.kept[number], truth[number])
                stats[f"recall.{number + 1}"] = found[0] / found[1].clamp(min=1)
        fewest = torch.stack(sizes).amin(0).clamp(min=1)
        total = torch.zeros_like(losses[0])
        rescaled = self.params.rescale and self.params.reduction == "mean"
        for factor, size, values in zip(self.weights, sizes, losses, strict=True):
            scaled = values * (size / fewest) if rescaled else values
            total = total + factor * scaled
        mean = total.mean()
        return mean, {"loss": mean.detach()} | stats

    def allowing(self, allowed: npt.NDArray[np.bool_]) -> AllowedNodes:
        """What :meth:`predict` takes as ``allowed``, from a flag per label column."""
        return AllowedNodes(self.index, allowed)

    def predict(
        self,
        states: Sequence[Tensor],
        k: int,
        *,
        score: Literal["level", "weighted"] | None = None,
        enough: bool = False,
        allowed: AllowedNodes | None = None,
    ) -> TopLabels:
        """The best ``k`` labels, by the rule of the settings or another; never any dropout.

        With ``enough``, more clusters are kept where fewer would not have ``k`` labels for certain.
        ``allowed`` is what :meth:`allowing` made: clusters without allowed labels are passed over.
        """
        with torch.no_grad():
            kept = self.kept
            if enough:
                needed = (allowed or self.index).needed(k)
                kept = [max(pair) for pair in zip(kept, needed, strict=True)]
            levels = self._levels(states, None, dropout=False, kept=kept, allowed=allowed)
            listed, scores = levels[-1].listed, levels[-1].logits.sigmoid()
            if len(levels) > 1 and (score or self.params.score) == "weighted":
                scores = scores * levels[-2].kept_logits.sigmoid().gather(1, listed.slots)
            return top_labels(scores, self.index.leaf_labels[listed.ids], listed.mask, k)

    def shortlist_recall(self, states: Sequence[Tensor], positives: RaggedLabels) -> Tensor:
        """Per cluster level (true labels still in the shortlist, true labels) at prediction.

        The last row is what can be found at all; counts of batches add up.
        """
        with torch.no_grad():
            levels = self._levels(states, None, dropout=False)
            truth = self.index.true_nodes(positives)
            rows = [
                found_labels(level.kept, level.kept_mask, true)
                for level, true in zip(levels[:-1], truth, strict=False)
            ]
            if not rows:
                return positives.indptr[-1:].repeat(1, 2)
            return torch.stack(rows)

    def text(self, states: Sequence[Tensor]) -> Tensor:
        """What the labels' level reads, without dropout."""
        return self._vectors(states, dropout=False)[-1]

    def path(self, states: Sequence[Tensor], column: int) -> list[NodeLogit]:
        """Logits on the way to a label, be it on the documents' shortlists or not."""
        nodes = [int(self.index.leaf_positions[column])]
        for level in range(len(self.tables) - 1, 0, -1):
            nodes.insert(0, int(self.index.parents(level)[nodes[0]]))
        counted = 2 if self.params.score == "weighted" else 1
        steps = []
        for level, vectors in enumerate(self._vectors(states, dropout=False)):
            table: Any = self.tables[level]
            weight, bias = (
                value[nodes[level]].detach().float() for value in (table.weight, table.bias)
            )
            logit = vectors.float() @ weight + bias
            counts = level >= len(nodes) - counted
            width = self.index.widths[level]
            steps.append(NodeLogit(level + 1, nodes[level], width, logit, float(bias), counts))
        return steps

    def output_layer(self) -> tuple[Float32, Float32]:
        """Weights (labels x width) and biases of the labels, in the order of their columns."""
        table: Any = self.tables[-1]
        columns = self.index.leaf_labels.cpu().numpy()
        weights = np.empty(tuple(table.weight.shape), np.float32)
        biases = np.empty(len(columns), np.float32)
        # In pieces: a table of millions of rows has no room for a second one beside it on a GPU.
        for start in range(0, len(columns), ROWS_PER_COPY):
            piece = slice(start, start + ROWS_PER_COPY)
            weights[columns[piece]] = table.weight[piece].detach().float().cpu().numpy()
            biases[columns[piece]] = table.bias[piece].detach().float().cpu().numpy()
        return weights, biases

    def _levels(
        self,
        states: Sequence[Tensor],
        truth: list[Tensor] | None,
        *,
        dropout: bool,
        kept: Sequence[int] | None = None,
        allowed: AllowedNodes | None = None,
    ) -> list[Level]:
        keep = self.kept if kept is None else kept
        levels: list[Level] = []
        for number, vectors in enumerate(self._vectors(states, dropout=dropout)):
            listed, logits = self._score(number, vectors, levels, truth, allowed)
            if number == len(self.kept):
                nothing = listed.ids[:, :0]
                levels.append(Level(listed, logits, nothing, nothing, nothing))
                continue
            forced = truth is not None and self.params.truth == "forced"
            scores = favour(logits, listed.targets) if forced else logits
            places, kept_mask = best(scores, listed.mask, keep[number])
            nodes = listed.ids.gather(1, places)
            levels.append(Level(listed, logits, nodes, kept_mask, logits.gather(1, places)))
        return levels

    def _score(
        self,
        number: int,
        vectors: Tensor,
        levels: list[Level],
        truth: list[Tensor] | None,
        allowed: AllowedNodes | None,
    ) -> tuple[Candidates, Tensor]:
        table: Any = self.tables[number]
        if number == 0:
            logits = full_logits(vectors, table)
            ids = torch.arange(logits.shape[1], device=logits.device).repeat(len(logits), 1)
            everything = torch.ones_like(ids, dtype=torch.bool)
            targets = contains(truth[0], ids) if truth else torch.zeros_like(everything)
            listed = Candidates(ids, everything, torch.zeros_like(ids), targets)
            return (listed if allowed is None else allowed.only(0, listed)), logits
        above = levels[-1]
        listed = shortlist(self.index, number, above.kept, above.kept_mask, truth)
        if allowed is not None:
            listed = allowed.only(number, listed)
        form = self.params.logits
        return listed, shortlist_logits(vectors, table, listed.ids, listed.mask, form=form)

    def _vectors(self, states: Sequence[Tensor], *, dropout: bool) -> list[Tensor]:
        """What each level's head reads."""
        if len(states) != len(self.tables) + 1:
            raise ConfigError(f"{len(self.tables) + 1} layer states wanted, got {len(states)}")
        pair = functional.dropout(torch.cat(list(states[:2]), 1), self.params.mix_dropout, dropout)
        vectors = [self.mix(pair), *states[2:]]
        return [
            functional.dropout(vector, share, dropout)
            for vector, share in zip(vectors, self.dropout, strict=True)
        ]

    def _unforced(self, level: Level, keep: int, true: Tensor) -> Tensor:
        kept, mask = level.kept, level.kept_mask
        if self.params.truth == "forced":
            places, mask = best(level.logits, level.listed.mask, keep)
            kept = level.listed.ids.gather(1, places)
        return found_labels(kept, mask, true)


def _dropouts(given: float | list[float] | None, levels: int) -> float | list[float]:
    if given is not None:
        return given
    published = {3: [0.3, 0.3, 0.4], 4: [0.2, 0.25, 0.4, 0.5]}
    steps = [0.3 + 0.2 * level / max(1, levels - 1) for level in range(levels)]
    return published.get(levels, steps)
