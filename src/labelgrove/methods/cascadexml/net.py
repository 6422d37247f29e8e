"""CascadeXML's network: coarse label clusters read early encoder layers, labels the last.

All levels are trained together. Each level scores only the children of the nodes that the level
above kept. Training adds the true nodes to the lists; prediction does not know them. A level's loss
reaches the layers it reads and those below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.arrays import CSR, Float32
from labelgrove.core.params import AutoFloat, AutoFloats, AutoInt, Params, fixed, param
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree
from labelgrove.nn.heads import candidates as lists
from labelgrove.nn.heads import layers as scoring
from labelgrove.nn.heads.candidates import RaggedLabels
from labelgrove.nn.heads.losses import document_losses
from labelgrove.nn.heads.rows import RowTable

ROWS_PER_COPY = 1 << 16

Layers: TypeAlias = Literal["spread", "last"] | list[int | list[int]]


@dataclass
class CascadeParams(Params):
    """CascadeXML's levels; a list has one value per level, a single value serves all."""

    standardise: bool = param(True, help="states start at mean 0, deviation 1; published: false")
    priors: bool = param(True, help="biases start from log odds; published: false")
    layers: Layers = param(
        "spread",
        help="spread: coarse levels read earlier layers, the first one two of them; last: all read "
        "the last; a list has the layer of each level, or its layers to join: [[9, 10], 11, 12]",
    )
    clusters: list[int] = param(
        [],
        ge=1,
        help="nodes of the cluster levels: powers of two that grow by the same factor; levels with "
        "as many nodes as labels are left out; empty = by the number of labels, with a factor of 8",
    )
    row_table_from: int = param(300_000, ge=0, help="tables this large update only the rows in use")
    kept: AutoInt | list[int] = param(
        "auto", ge=1, help="best clusters kept on each cluster level; auto = by their number"
    )
    dropout: AutoFloat | list[float] | None = param(
        "auto",
        ge=0,
        le=1,
        help="dropout before each level's head; auto = by the epochs, none = as published for the "
        "depth",
    )
    mix_dropout: float = param(0.2, ge=0, le=1, help="dropout before the first level's layers mix")
    truth: Literal["forced", "joined"] = param(
        "forced",
        help="forced: true clusters are always kept (code); joined: true nodes are added to the "
        "children of the best clusters (paper)",
    )
    loss: Literal["bce"] = param("bce", help="cross-entropy of each label")
    reduction: Literal["mean", "sum"] = param("mean", help="of the losses over candidates")
    rescale: bool = param(
        True,
        help="multiply a level's mean loss by its candidates / the fewest of any level (paper); "
        "false = all means count the same (code); sums need no rescaling",
    )
    level_weights: AutoFloats = param(
        "auto",
        ge=0,
        help="factor on each level's loss; empty = 1; auto = less for clusters that are all kept",
    )
    score: Literal["level", "weighted"] = param(
        "level",
        help="level: the label's probability; weighted: times that of its cluster (public code)",
    )


class Level(NamedTuple):
    """One level's result for a batch: its candidates, their logits, and the nodes it kept."""

    listed: lists.Candidates
    logits: Tensor
    kept: Tensor
    kept_mask: Tensor
    kept_logits: Tensor


class CascadeNet(nn.Module):
    """From pooled layer states to labels, level by level down a tree.

    Each level reads one state, or several joined; see :func:`cascade_layers`.
    A large label table is created on ``device``.
    """

    def __init__(
        self,
        width: int,
        tree: LabelTree,
        params: CascadeParams | None = None,
        *,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        params = (params or CascadeParams()).validate("cascadexml")
        # A method has derived these; alone, the network has the published dropout.
        self.params = params = replace(
            params,
            kept=fixed(params.kept, 128),
            dropout=fixed(params.dropout, None),
            level_weights=fixed(params.level_weights, []),
        )
        large = tree.labels >= self.params.row_table_from
        table = RowTable(tree.labels, width, bias=True, device=device) if large else None
        self.index = lists.TreeIndex(tree)
        levels = len(tree.widths)
        self.kept = scoring.per_level(params.kept, levels - 1, "kept")
        self.dropout = scoring.per_level(_dropouts(params.dropout, levels), levels, "dropout")
        self.weights = scoring.per_level(params.level_weights or 1.0, levels, "level_weights")
        self.joined = layers_joined(params.layers, levels)
        for level, count in enumerate(self.joined):
            if count > 1:
                self.add_module(mix_name(level), nn.Linear(count * width, width))
        self.text_width = width
        above = [scoring.LabelTable(nodes, width) for nodes in tree.widths[:-1]]
        self.tables = nn.ModuleList([*above, table or scoring.LabelTable(tree.labels, width)])

    @property
    def _tables(self) -> Any:
        """The tables of all levels, whose class torch forgets."""
        return self.tables

    @torch.no_grad()
    def start_from(self, labels: CSR) -> None:
        """Sets the biases from the labels of the training documents, unless ``priors`` is off.

        On the first level every document is scored on every node. Below it, a node is scored where
        its parent is kept, so in an average share of the documents, and where it is true.
        """
        if not self.params.priors:
            return
        kept = [1.0] + [k / w for k, w in zip(self.kept, self.index.widths, strict=False)]
        counts = self.index.bearers(labels)
        for table, bearers, share in zip(self._tables, counts, kept, strict=True):
            scored = np.maximum(min(share, 1.0) * labels.shape[0], bearers)
            table.bias.copy_(scoring.log_odds(bearers, scored))

    def loss(
        self, states: Sequence[Tensor], positives: RaggedLabels
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss of the documents, and statistics of each level.

        ``recall.1`` is the share of true labels whose cluster the first level would keep without
        forcing, but from lists that include the true nodes; :meth:`shortlist_recall` uses lists
        without them.
        """
        truth = self.index.true_nodes(positives)
        levels = self._levels(states, truth, dropout=self.training)
        reduction = self.params.reduction
        stats: dict[str, Tensor] = {}
        losses, sizes = [], []
        for number, level in enumerate(levels):
            _, mask, _, targets = level.listed
            losses.append(document_losses(level.logits, targets, mask=mask, reduction=reduction))
            sizes.append(mask.sum(1))
            stats[f"loss.{number + 1}"] = losses[-1].detach().mean()
            stats[f"candidates.{number + 1}"] = sizes[-1].float().mean()
            if number < len(self.kept):
                hits, true = self._unforced(level, self.kept[number], truth[number])
                stats[f"recall.{number + 1}"] = hits / true.clamp(min=1)
        fewest = torch.stack(sizes).amin(0).clamp(min=1)
        total = torch.zeros_like(losses[0])
        rescaled = self.params.rescale and reduction == "mean"
        for factor, size, values in zip(self.weights, sizes, losses, strict=True):
            total = total + factor * (values * (size / fewest) if rescaled else values)
        mean = total.mean()
        return mean, {"loss": mean.detach()} | stats

    def allowing(self, allowed: npt.NDArray[np.bool_]) -> lists.AllowedNodes:
        """The argument ``allowed`` of :meth:`predict`, from a flag per label column."""
        return lists.AllowedNodes(self.index, allowed)

    def predict(
        self,
        states: Sequence[Tensor],
        k: int,
        *,
        enough: bool = False,
        allowed: lists.AllowedNodes | None = None,
    ) -> scoring.TopLabels:
        """The best ``k`` labels by ``params.score``, without dropout.

        With ``enough``, enough clusters are kept to have ``k`` labels. ``allowed`` is from
        :meth:`allowing`; clusters without allowed labels are skipped.
        """
        with torch.no_grad():
            kept = self.kept
            if enough:
                needed = (allowed or self.index).needed(k)
                kept = [max(pair) for pair in zip(kept, needed, strict=True)]
            levels = self._levels(states, None, dropout=False, kept=kept, allowed=allowed)
            listed, scores = levels[-1].listed, levels[-1].logits.sigmoid()
            if len(levels) > 1 and self.params.score != "level":
                scores = scores * levels[-2].kept_logits.sigmoid().gather(1, listed.slots)
            return scoring.top_labels(scores, self.index.leaf_labels[listed.ids], listed.mask, k)

    def scores(self, states: Sequence[Tensor], columns: Tensor) -> Tensor:
        """What :meth:`predict` gives to label columns of each document; meaningless where -1."""
        real = columns >= 0
        nodes, scores = self.index.leaf_positions[columns.clamp(min=0)], torch.ones(())
        with torch.no_grad():
            levels = list(enumerate(self._vectors(states, dropout=False)))
            counted = 1 if self.params.score == "level" else 2
            for level, vectors in reversed(levels[-counted:]):
                table = self._tables[level]
                logits = scoring.shortlist_logits(vectors, table, nodes, real)
                scores = scores.to(logits.device) * logits.sigmoid()
                nodes = self.index.parents(level)[nodes]
        return scores

    def shortlist_recall(self, states: Sequence[Tensor], positives: RaggedLabels) -> Tensor:
        """Per cluster level, or for all labels: (true labels in the shortlist, true labels)."""
        with torch.no_grad():
            levels = self._levels(states, None, dropout=False)
            truth = self.index.true_nodes(positives)
            rows = [
                lists.found_labels(level.kept, level.kept_mask, true)
                for level, true in zip(levels[:-1], truth, strict=False)
            ]
            if not rows:
                return positives.indptr[-1:].repeat(1, 2)
            return torch.stack(rows)

    def text(self, states: Sequence[Tensor]) -> Tensor:
        """What the level of the labels reads, without dropout."""
        return self._vectors(states, dropout=False)[-1]

    def output_layer(self) -> tuple[Float32, Float32]:
        """Weights (labels x width) and biases of the labels, in the order of their columns."""
        table = self._tables[-1]
        columns = self.index.leaf_labels.cpu().numpy()
        weights = np.empty(tuple(table.weight.shape), np.float32)
        biases = np.empty(len(columns), np.float32)
        # In pieces: a GPU has no memory for a second table of millions of rows.
        for start in range(0, len(columns), ROWS_PER_COPY):
            piece = slice(start, start + ROWS_PER_COPY)
            weights[columns[piece]] = scoring.as_numpy(table.weight[piece])
            biases[columns[piece]] = scoring.as_numpy(table.bias[piece])
        return weights, biases

    def _levels(
        self,
        states: Sequence[Tensor],
        truth: list[Tensor] | None,
        *,
        dropout: bool,
        kept: Sequence[int] | None = None,
        allowed: lists.AllowedNodes | None = None,
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
            scores = lists.favour(logits, listed.targets) if forced else logits
            places, kept_mask = lists.best(scores, listed.mask, keep[number])
            nodes = listed.ids.gather(1, places)
            levels.append(Level(listed, logits, nodes, kept_mask, logits.gather(1, places)))
        return levels

    def _score(
        self,
        number: int,
        vectors: Tensor,
        levels: list[Level],
        truth: list[Tensor] | None,
        allowed: lists.AllowedNodes | None,
    ) -> tuple[lists.Candidates, Tensor]:
        table = self._tables[number]
        if number == 0:
            logits = scoring.full_logits(vectors, table)
            ids = torch.arange(logits.shape[1], device=logits.device).repeat(len(logits), 1)
            everything = torch.ones_like(ids, dtype=torch.bool)
            targets = lists.contains(truth[0], ids) if truth else torch.zeros_like(everything)
            listed = lists.Candidates(ids, everything, torch.zeros_like(ids), targets)
            return (listed if allowed is None else allowed.only(0, listed)), logits
        above = levels[-1]
        listed = lists.shortlist(self.index, number, above.kept, above.kept_mask, truth)
        if allowed is not None:
            listed = allowed.only(number, listed)
        return listed, scoring.shortlist_logits(vectors, table, listed.ids, listed.mask)

    def _vectors(self, states: Sequence[Tensor], *, dropout: bool) -> list[Tensor]:
        """What each level's head reads."""
        if len(states) != sum(self.joined):
            raise ConfigError(f"the heads read {sum(self.joined)} layer states, got {len(states)}")
        rest, vectors = iter(states), []
        for level, (count, share) in enumerate(zip(self.joined, self.dropout, strict=True)):
            own = list(islice(rest, count))
            vector = own[0]
            if count > 1:
                side_by_side = torch.cat(own, 1)
                kept = functional.dropout(side_by_side, self.params.mix_dropout, dropout)
                vector = self.get_submodule(mix_name(level))(kept)
            vectors.append(functional.dropout(vector, share, dropout))
        return vectors

    def _unforced(self, level: Level, keep: int, true: Tensor) -> Tensor:
        kept, mask = level.kept, level.kept_mask
        if self.params.truth == "forced":
            places, mask = lists.best(level.logits, level.listed.mask, keep)
            kept = level.listed.ids.gather(1, places)
        return lists.found_labels(kept, mask, true)


def mix_name(level: int) -> str:
    """The name of the layer that makes one vector of the states that a level joins."""
    return f"mix{level or ''}"


def _dropouts(given: float | list[float] | None, levels: int) -> float | list[float]:
    if given is not None:
        return given
    published = {3: [0.3, 0.3, 0.4], 4: [0.2, 0.25, 0.4, 0.5]}
    steps = [0.3 + 0.2 * level / max(1, levels - 1) for level in range(levels)]
    return published.get(levels, steps)


def layers_joined(kind: Layers, levels: int) -> list[int]:
    """How many layers each level joins."""
    if isinstance(kind, list):
        return [len(own) if isinstance(own, list) else 1 for own in kind]
    return [2] + [1] * (levels - 1)
