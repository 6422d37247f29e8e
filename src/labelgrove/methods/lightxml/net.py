"""LightXML's network: heads over groups and over labels that learn together.

Small label sets get one head over all labels; with ``full``, any label set does. Large ones get a
head over groups of labels, which chooses the candidates, and a table of label vectors behind a
bottleneck. In training, candidates are the labels of the groups that score best at the moment, so
negatives become harder over time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.arrays import CSR, Float32
from labelgrove.core.params import AutoBool, AutoFloat, Params, fixed, param
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree
from labelgrove.nn.heads import candidates as lists
from labelgrove.nn.heads import layers as scoring
from labelgrove.nn.heads.candidates import RaggedLabels
from labelgrove.nn.heads.full import FullHead
from labelgrove.nn.heads.losses import document_losses, full_losses
from labelgrove.nn.heads.rows import RowTable

# Settings that one head without groups ignores.
OF_GROUPS = (
    *("bottleneck", "bottleneck_sigmoid", "row_table_from"),
    *("groups_kept", "truth", "score", "max_candidates", "negatives"),
)


@dataclass
class LightXmlParams(Params):
    """LightXML's heads: the forms of the paper and of its code; defaults are what did better.

    The defaults of ``standardise``, ``priors`` and ``score`` are in neither.
    """

    layers: int = param(5, ge=1, help="number of last encoder layers whose states are joined")
    dropout: AutoFloat = param(
        "auto", ge=0, le=1, help="share of these states dropped in training; auto = by the epochs"
    )
    one_head_up_to: int = param(
        100_000, ge=0, help="label sets up to this size get one head; larger ones get groups"
    )
    full: AutoBool = param(
        "auto",
        help="one head for any number of labels: it learns from all of them, chunk by chunk, and "
        "stores no logits; its weights are bfloat16 on a GPU (Renée, ELMO); auto = on a GPU, where "
        "there would be groups of up to a million labels",
    )
    chunk: int = param(16_384, ge=1, help="labels that a full head scores at a time")
    standardise: bool = param(True, help="states start at mean 0, deviation 1; published: false")
    priors: bool = param(True, help="biases start from log odds; published: false")
    bottleneck: int = param(400, ge=1, help="width of label vectors, for label sets with groups")
    bottleneck_sigmoid: bool = param(False, help="sigmoid on the bottleneck (paper, not code)")
    row_table_from: int = param(300_000, ge=0, help="tables this large update only the rows in use")
    groups_kept: int = param(75, ge=1, help="number of best groups whose labels are candidates")
    truth: Literal["forced", "joined"] = param(
        "forced",
        help="forced: true groups are always among the best (code); joined: true labels are added "
        "to those of the best groups (paper)",
    )
    loss: Literal["bce"] = param("bce", help="cross-entropy of each label")
    reduction: Literal["mean", "sum"] = param(
        "sum", help="how losses over groups, and over labels, add up: mean (code), sum (paper)"
    )
    score: Literal["level", "weighted"] = param(
        "level", help="level: the label's probability; weighted: times its group's (published)"
    )
    max_candidates: int | None = param(None, ge=1, help="most labels per document, true ones first")
    negatives: Literal["dynamic", "static", "static-two"] = param(
        "dynamic",
        help="candidates in training: labels of the groups that are best at the moment; or (as in "
        "the paper's ablation) of those of a network trained before, static: with one encoder for "
        "groups and labels in the end, static-two: with one for each",
    )

    @property
    def is_full(self) -> bool:
        """Whether ``full`` is on; what is not decided yet is off."""
        return self.full is True

    def groups_labels(self, labels: int) -> bool:
        """Whether a label set of this size gets groups."""
        return not self.is_full and labels > self.one_head_up_to


class LightXmlNet(nn.Module):
    """From the pooled states of the last layers to labels.

    The groups are the level above the labels of ``tree``. Without a tree, or with one level, one
    head scores every label. A large label table is created on ``device``.
    """

    def __init__(
        self,
        width: int,
        labels: int,
        tree: LabelTree | None = None,
        params: LightXmlParams | None = None,
        *,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.params = (params or LightXmlParams()).validate("lightxml")
        wide = width * self.params.layers
        self.index: lists.TreeIndex | None = None
        if tree is None or len(tree.parents) == 1:
            chunk = self.params.chunk
            self.full: nn.Linear | FullHead = (
                FullHead(wide, labels, chunk=chunk, device=device)
                if self.params.is_full
                else nn.Linear(wide, labels)
            )
            return
        if tree.labels != labels:
            raise ConfigError(f"the tree has {tree.labels} labels, the label set {labels}")
        self.index = lists.TreeIndex(two_levels(tree))
        large = labels >= self.params.row_table_from
        table = RowTable(labels, self.params.bottleneck, device=device) if large else None
        self.groups = nn.Linear(wide, tree.widths[-2])
        self.bottleneck = nn.Linear(wide, self.params.bottleneck)
        self.table = table or scoring.LabelTable(labels, self.params.bottleneck, bias=False)

    @torch.no_grad()
    def start_from(self, labels: CSR, *, groups_only: bool = False) -> None:
        """Sets the biases from the labels of the training documents, unless ``priors`` is off.

        Labels behind a bottleneck have no biases. So the bottleneck's first unit starts as a
        constant, and the labels' weights for it as their log odds where their group is kept.
        """
        if not self.params.priors:
            return
        documents = labels.shape[0]
        if self.index is None:
            self.full.bias.copy_(scoring.log_odds(np.diff(labels.tocsc().indptr), documents))
            return
        groups, leaves = self.index.bearers(labels)
        self.groups.bias.copy_(scoring.log_odds(groups, documents))
        if groups_only:
            return
        scored = np.maximum(min(1.0, self.params.groups_kept / len(groups)) * documents, leaves)
        self.bottleneck.weight[0] = 0.0
        self.bottleneck.bias[0] = 1.0
        constant = self._hidden(torch.zeros_like(self.bottleneck.weight[:1]))[0, 0]
        self.table.weight[:, 0] = scoring.log_odds(leaves, scored).to(constant.device) / constant

    def loss(
        self, states: Sequence[Tensor], positives: RaggedLabels
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss; its parts, candidates, and ``recall`` of groups without forcing."""
        params, index = self.params, self.index
        text = self._text(states, dropout=self.training)
        if index is None:
            truth = positives.padded().sort(dim=1).values
            total = self._full_loss(text, truth)
            return total, {"loss": total.detach()}
        groups, labels = index.true_nodes(positives)
        group_logits = self.groups(text)
        group_loss = self._group_loss(group_logits, groups)
        plain, plain_mask = lists.best(group_logits, None, params.groups_kept)
        kept, kept_mask = plain, plain_mask
        if params.truth == "forced":
            everyone = torch.arange(index.widths[0], device=kept.device).repeat(len(kept), 1)
            scores = lists.favour(group_logits, lists.contains(groups, everyone))
            kept, kept_mask = lists.best(scores, None, params.groups_kept)
        label_loss, candidates = self._label_loss(text, kept, kept_mask, (groups, labels))
        total = group_loss + label_loss
        hits, true = lists.found_labels(plain, plain_mask, groups)
        return total, {
            "loss": total.detach(),
            "loss.groups": group_loss.detach(),
            "loss.labels": label_loss.detach(),
            "recall": hits / true.clamp(min=1),
            "candidates": candidates,
        }

    def group_loss(self, states: Sequence[Tensor], positives: RaggedLabels) -> Tensor:
        """The groups' part of the loss alone, for training with static negatives."""
        assert self.index is not None
        logits = self.groups(self._text(states, dropout=self.training))
        return self._group_loss(logits, self.index.true_nodes(positives)[0])

    def label_loss(
        self, states: Sequence[Tensor], positives: RaggedLabels, above: RaggedLabels
    ) -> Tensor:
        """The labels' part of the loss alone; candidates are the labels of the groups ``above``."""
        assert self.index is not None
        nodes = above.padded()
        mask = lists.valid_nodes(nodes)
        text, truth = self._text(states, dropout=self.training), self.index.true_nodes(positives)
        return self._label_loss(text, nodes.masked_fill(~mask, 0), mask, truth)[0]

    def best_groups(self, states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The groups that prediction keeps, best first, and which of them are real."""
        return self._best_groups(self._group_text(states))[1:]

    def allowing(self, allowed: npt.NDArray[np.bool_]) -> lists.AllowedNodes | Tensor:
        """The argument ``allowed`` of :meth:`predict`, from a flag per label column."""
        if self.index is not None:
            return lists.AllowedNodes(self.index, allowed)
        return torch.from_numpy(allowed).to(self.full.weight.device)

    def predict(
        self, states: Sequence[Tensor], k: int, *, enough: bool = False, allowed: Any = None
    ) -> scoring.TopLabels:
        """The best ``k`` labels by ``params.score``, without dropout.

        With ``enough``, enough groups are kept to have ``k`` labels. ``allowed`` is from
        :meth:`allowing`; groups without allowed labels are skipped.
        """
        with torch.no_grad():
            text = self._text(states, dropout=False)
            if self.index is None:
                if isinstance(self.full, FullHead):
                    top = self.full.top(text, k, allowed)
                else:
                    top = scoring.top_labels(self.full(text), None, allowed, k)
                return scoring.TopLabels(top.columns, top.scores.sigmoid())
            at_least = (allowed or self.index).needed(k)[0] if enough else 1
            recalled = text if len(states) == self.params.layers else self._group_text(states)
            group_logits, kept, kept_mask = self._best_groups(recalled, at_least, allowed)
            listed = lists.shortlist(self.index, 1, kept, kept_mask)
            if allowed is not None:
                listed = allowed.only(1, listed)
            scores = self._label_logits(text, listed.ids, listed.mask).sigmoid()
            if self.params.score == "weighted":
                probabilities = group_logits.gather(1, kept).float().sigmoid()
                scores = scores * probabilities.gather(1, listed.slots)
            return scoring.top_labels(scores, self.index.leaf_labels[listed.ids], listed.mask, k)

    def scores(self, states: Sequence[Tensor], columns: Tensor) -> Tensor:
        """What :meth:`predict` gives to label columns of each document; meaningless where -1."""
        real = columns >= 0
        with torch.no_grad():
            text = self._text(states, dropout=False)
            if self.index is None:
                used, places = scoring.used_rows(columns.clamp(min=0), real, self.full.out_features)
                weight = self.full.weight[used].to(text.dtype)
                logits = functional.linear(text, weight, self.full.bias[used])
                return logits.gather(1, places).float().sigmoid()
            leaves = self.index.leaf_positions[columns.clamp(min=0)]
            scores = self._label_logits(text, leaves, real).sigmoid()
            if self.params.score == "weighted":
                of_groups = self.groups(self._group_text(states)).float().sigmoid()
                scores = scores * of_groups.gather(1, self.index.parents(1)[leaves])
            return scores

    def shortlist_recall(self, states: Sequence[Tensor], positives: RaggedLabels) -> Tensor:
        """One row (true labels in the shortlists of prediction, true labels)."""
        with torch.no_grad():
            if self.index is None:
                count = positives.indptr[-1]
                return torch.stack([count, count])[None]
            kept, kept_mask = self.best_groups(states)
            return lists.found_labels(kept, kept_mask, self.index.true_nodes(positives)[0])[None]

    @property
    def text_width(self) -> int:
        """Size of :meth:`text`."""
        return self.full.in_features if self.index is None else self.params.bottleneck

    def text(self, states: Sequence[Tensor]) -> Tensor:
        """What the output layer reads, without dropout."""
        wide = self._text(states, dropout=False)
        return wide if self.index is None else self._hidden(wide)

    def output_layer(self) -> tuple[Float32, Float32]:
        """Weights (labels x width) and biases of the labels, in the order of their columns."""
        if self.index is None:
            return scoring.as_numpy(self.full.weight), scoring.as_numpy(self.full.bias)
        leaves = self.index.leaf_positions
        return scoring.as_numpy(self.table.weight[leaves]), np.zeros(len(leaves), np.float32)

    def _text(self, states: Sequence[Tensor], *, dropout: bool) -> Tensor:
        layers = self.params.layers
        encoders = 2 if self.params.negatives == "static-two" else 1
        if len(states) not in (layers, encoders * layers):
            raise ConfigError(f"the heads read the states of {layers} layers, got {len(states)}")
        rate = fixed(self.params.dropout, 0.5)
        return functional.dropout(torch.cat(list(states[:layers]), 1), rate, dropout)

    def _group_text(self, states: Sequence[Tensor]) -> Tensor:
        """What the groups' head reads in prediction: a second encoder's states, if there is one."""
        return self._text(states[-self.params.layers :], dropout=False)

    def _best_groups(
        self, text: Tensor, at_least: int = 1, allowed: lists.AllowedNodes | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.groups(text)
        mask = None if allowed is None else allowed.levels[0]
        return logits, *lists.best(logits, mask, max(self.params.groups_kept, at_least))

    def _full_loss(self, text: Tensor, truth: Tensor) -> Tensor:
        if isinstance(self.full, FullHead):
            scale = 1.0 if self.params.reduction == "sum" else 1 / self.full.out_features
            return self.full.loss(text, truth, scale=scale)
        return full_losses(self.full(text), truth, reduction=self.params.reduction).mean()

    def _group_loss(self, logits: Tensor, groups: Tensor) -> Tensor:
        return full_losses(logits, groups, reduction=self.params.reduction).mean()

    def _label_loss(
        self, text: Tensor, kept: Tensor, kept_mask: Tensor, truth: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Loss over the labels of the kept groups and the true ones, and how many there are."""
        assert self.index is not None
        params = self.params
        listed = lists.shortlist(self.index, 1, kept, kept_mask, truth, most=params.max_candidates)
        logits = self._label_logits(text, listed.ids, listed.mask)
        losses = document_losses(
            logits, listed.targets, mask=listed.mask, reduction=params.reduction
        )
        return losses.mean(), listed.mask.sum(1).float().mean()

    def _label_logits(self, text: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        return scoring.shortlist_logits(self._hidden(text), self.table, ids, mask)

    def _hidden(self, text: Tensor) -> Tensor:
        hidden: Tensor = self.bottleneck(text)
        return hidden.sigmoid() if self.params.bottleneck_sigmoid else hidden


def two_levels(tree: LabelTree) -> LabelTree:
    """The labels and the groups above them, which are all that the heads search."""
    if len(tree.widths) == 2:
        return tree
    return LabelTree([np.zeros(tree.widths[-2], np.int32), tree.parents[-1]], tree.leaf_labels)
