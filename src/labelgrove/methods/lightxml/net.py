"""LightXML's network: groups of labels and labels learn together, groups choose the candidates.

Small label sets get one head over all labels. Large ones get a head over groups and a table of
label vectors behind a bottleneck. In training, candidates are the labels of the groups that look
best at this moment, so negatives grow harder as the model learns.
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
from labelgrove.core.params import Params, param
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree
from labelgrove.nn.heads.allowed import AllowedNodes
from labelgrove.nn.heads.candidates import (
    TreeIndex,
    best,
    contains,
    favour,
    found_labels,
    shortlist,
)
from labelgrove.nn.heads.full import full_head_best, full_head_loss
from labelgrove.nn.heads.layers import (
    LabelTable,
    LogitForm,
    NodeLogit,
    Rows,
    TopLabels,
    log_odds,
    shortlist_logits,
    top_labels,
)
from labelgrove.nn.heads.losses import document_losses, full_losses
from labelgrove.nn.heads.ragged import RaggedLabels

_OF_GROUPS = (
    *("bottleneck", "bottleneck_sigmoid", "row_table_from"),
    *("groups_kept", "truth", "score", "max_candidates"),
)
_OF_ONE_HEAD = ("full_chunk",)


@dataclass
class LightXmlParams(Params):
    """LightXML's heads: forms of the paper and of its code, by default what did better.

    ``standardise``, ``priors`` and ``score`` are as in neither.

    >>> LightXmlParams(reduction="mean", truth="joined").validate().groups_kept
    75
    """

    layers: int = param(5, ge=1, help="last encoder layers whose states are put side by side")
    dropout: float = param(0.5, ge=0, le=1, help="share of these states dropped in training")
    one_head_up_to: int = param(
        100_000, ge=0, help="label sets up to this size get one head; larger ones get groups"
    )
    standardise: bool = param(
        True,
        help="states begin at mean 0 and spread 1 before a head reads them; false = as published",
    )
    priors: bool = param(
        True, help="biases begin at the log odds of labels and groups; false = 0, as published"
    )
    bottleneck: int = param(400, ge=1, help="width of label vectors; label sets with groups only")
    bottleneck_sigmoid: bool = param(
        False, help="sigmoid on the bottleneck: in the paper, not in its code"
    )
    row_table_from: int = param(
        300_000, ge=0, help="from so many labels on, an update touches only the rows in use"
    )
    groups_kept: int = param(75, ge=1, help="best groups whose labels are candidates")
    truth: Literal["forced", "joined"] = param(
        "forced",
        help="forced: true groups are always among the best (code); joined: the best groups as "
        "they are, and the true labels (paper)",
    )
    reduction: Literal["mean", "sum"] = param(
        "sum", help="of a document's losses over groups, and over labels: mean (code), sum (paper)"
    )
    score: Literal["level", "weighted"] = param(
        "level",
        help="with groups; level: the label's probability; weighted: times its group's (published)",
    )
    max_candidates: int | None = param(
        None, ge=1, help="most labels scored per training document, true ones first; none = all"
    )
    full_chunk: int | None = param(
        None,
        ge=1,
        help="labels that a head without groups scores at a time, to save memory; none = all",
    )
    logits: LogitForm = param("auto", help="how candidates are scored; all give the same logits")


def idle_settings(params: LightXmlParams, *, grouped: bool) -> list[str]:
    """Names of settings that were changed and that this form of the heads does not read.

    >>> idle_settings(LightXmlParams(groups_kept=150), grouped=False)
    ['heads.groups_kept']
    """
    return params.changed(_OF_ONE_HEAD if grouped else _OF_GROUPS, "heads")


class LightXmlNet(nn.Module):
    """From the pooled states of the last layers to labels.

    ``tree`` gives the groups: the level above the labels. Without one (or with labels only) every
    label is scored. ``table`` brings a label table of bottleneck width, its rows in the order of
    the tree's leaves.

    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1])
    >>> net = LightXmlNet(4, 3, tree, LightXmlParams(layers=2, bottleneck=3))
    >>> net.predict([torch.ones(1, 4), torch.ones(1, 4)], k=2).columns.shape
    torch.Size([1, 2])
    """

    def __init__(
        self,
        width: int,
        labels: int,
        tree: LabelTree | None = None,
        params: LightXmlParams | None = None,
        *,
        table: Rows | None = None,
    ) -> None:
        super().__init__()
        self.params = (params or LightXmlParams()).validate("lightxml")
        wide = width * self.params.layers
        self.index: TreeIndex | None = None
        if tree is None or len(tree.parents) == 1:
            self.full = nn.Linear(wide, labels)
            return
        if tree.labels != labels:
            raise ConfigError(f"the tree has {tree.labels} labels, the label set {labels}")
        groups = np.zeros(tree.widths[-2], np.int32)
        self.index = TreeIndex(LabelTree([groups, tree.parents[-1]], tree.leaf_labels))
        self.groups = nn.Linear(wide, len(groups))
        self.bottleneck = nn.Linear(wide, self.params.bottleneck)
        self.table = table or LabelTable(labels, self.params.bottleneck, bias=False)
        if tuple(self.table.weight.shape) != (labels, self.params.bottleneck):
            raise ConfigError(
                f"the label table must be {labels} x {self.params.bottleneck}, "
                f"got {tuple(self.table.weight.shape)}"
            )

    @torch.no_grad()
    def start_from(self, labels: CSR) -> None:
        """Sets the biases by the training documents' labels, unless ``priors`` is off.

        Behind a bottleneck labels have no biases: its first number begins as a constant, and the
        labels' first numbers as what their biases would be where their group is kept.
        """
        if not self.params.priors:
            return
        documents = labels.shape[0]
        if self.index is None:
            self.full.bias.copy_(log_odds(np.diff(labels.tocsc().indptr), documents))
            return
        groups, leaves = self.index.bearers(labels)
        self.groups.bias.copy_(log_odds(groups, documents))
        scored = np.maximum(min(1.0, self.params.groups_kept / len(groups)) * documents, leaves)
        self.bottleneck.weight[0] = 0.0
        self.bottleneck.bias[0] = 1.0
        constant = self._hidden(torch.zeros_like(self.bottleneck.weight[:1]))[0, 0]
        self.table.weight[:, 0] = log_odds(leaves, scored).to(constant.device) / constant

    def loss(
        self, states: Sequence[Tensor], positives: RaggedLabels
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss of the documents, and what to watch: parts of it, recall, candidates.

        ``recall`` is the share of true labels in the best groups when nobody tells these.
        """
        params, index = self.params, self.index
        text = self._text(states, dropout=self.training)
        if index is None:
            truth = positives.padded().sort(dim=1).values
            if params.full_chunk is None:
                total = full_losses(self.full(text), truth, reduction=params.reduction).mean()
            else:
                total = full_head_loss(
                    text, self.full, truth, chunk=params.full_chunk, reduction=params.reduction
                )
            return total, {"loss": total.detach()}
        groups, labels = index.true_nodes(positives)
        group_logits = self.groups(text)
        group_loss = full_losses(group_logits, groups, reduction=params.reduction).mean()
        plain, plain_mask = best(group_logits, None, params.groups_kept)
        kept, kept_mask = plain, plain_mask
        if params.truth == "forced":
            everyone = torch.arange(index.widths[0], device=kept.device).repeat(len(kept), 1)
            scores = favour(group_logits, contains(groups, everyone))
            kept, kept_mask = best(scores, None, params.groups_kept)
        listed = shortlist(index, 1, kept, kept_mask, (groups, labels), most=params.max_candidates)
        logits = self._label_logits(text, listed.ids, listed.mask)
        label_loss = document_losses(
            logits, listed.targets, mask=listed.mask, reduction=params.reduction
        ).mean()
        total = group_loss + label_loss
        found = found_labels(plain, plain_mask, groups)
        return total, {
            "loss": total.detach(),
            "loss.groups": group_loss.detach(),
            "loss.labels": label_loss.detach(),
            "recall": found[0] / found[1].clamp(min=1),
            "candidates": listed.mask.sum(1).float().mean(),
        }

    def allowing(self, allowed: npt.NDArray[np.bool_]) -> AllowedNodes | Tensor:
        """What :meth:`predict` takes as ``allowed``, from a flag per label column."""
        if self.index is not None:
            return AllowedNodes(self.index, allowed)
        return torch.from_numpy(allowed).to(self.full.weight.device)

    def predict(
        self,
        states: Sequence[Tensor],
        k: int,
        *,
        enough: bool = False,
        allowed: Any = None,
    ) -> TopLabels:
        """The best ``k`` labels by ``params.score``; never any dropout.

        With ``enough``, more groups are kept where fewer would not have ``k`` labels for certain.
        ``allowed`` is what :meth:`allowing` made: groups without allowed labels are passed over.
        """
        with torch.no_grad():
            text = self._text(states, dropout=False)
            if self.index is None:
                chunk = self.params.full_chunk or self.full.out_features
                found = full_head_best(text, self.full, k, chunk=chunk, allowed=allowed)
                return TopLabels(found.columns, found.scores.sigmoid())
            at_least = (allowed or self.index).needed(k)[0] if enough else 1
            group_logits, kept, kept_mask = self._best_groups(text, at_least, allowed)
            listed = shortlist(self.index, 1, kept, kept_mask)
            if allowed is not None:
                listed = allowed.only(1, listed)
            scores = self._label_logits(text, listed.ids, listed.mask).sigmoid()
            if self.params.score == "weighted":
                chances = group_logits.gather(1, kept).float().sigmoid()
                scores = scores * chances.gather(1, listed.slots)
            return top_labels(scores, self.index.leaf_labels[listed.ids], listed.mask, k)

    def shortlist_recall(self, states: Sequence[Tensor], positives: RaggedLabels) -> Tensor:
        """(true labels in the shortlists of prediction, true labels) as one row: counts add up."""
        with torch.no_grad():
            if self.index is None:
                count = positives.indptr[-1]
                return torch.stack([count, count])[None]
            _, kept, kept_mask = self._best_groups(self._text(states, dropout=False))
            return found_labels(kept, kept_mask, self.index.true_nodes(positives)[0])[None]

    def path(self, states: Sequence[Tensor], column: int) -> list[NodeLogit]:
        """Logits on the way to a label, be it on the documents' shortlists or not."""
        text = self._text(states, dropout=False)
        if self.index is None:
            logit = text @ self.full.weight[column] + self.full.bias[column]
            bias = float(self.full.bias[column].detach())
            return [NodeLogit(1, column, self.full.out_features, logit, bias, True)]
        leaf = int(self.index.leaf_positions[column])
        group = int(self.index.parents(1)[leaf])
        of_group = text @ self.groups.weight[group] + self.groups.bias[group]
        of_label = self._hidden(text) @ self.table.weight[leaf].to(text.dtype)
        groups, labels = self.index.widths
        counts = self.params.score == "weighted"
        return [
            NodeLogit(1, group, groups, of_group, float(self.groups.bias[group].detach()), counts),
            NodeLogit(2, leaf, labels, of_label, 0.0, True),
        ]

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
            return _numpy(self.full.weight), _numpy(self.full.bias)
        leaves = self.index.leaf_positions
        return _numpy(self.table.weight[leaves]), np.zeros(len(leaves), np.float32)

    def _text(self, states: Sequence[Tensor], *, dropout: bool) -> Tensor:
        if len(states) != self.params.layers:
            raise ConfigError(f"states of {self.params.layers} layers wanted, got {len(states)}")
        return functional.dropout(torch.cat(list(states), 1), self.params.dropout, dropout)

    def _best_groups(
        self, text: Tensor, at_least: int = 1, allowed: AllowedNodes | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.groups(text)
        mask = None if allowed is None else allowed.levels[0]
        return logits, *best(logits, mask, max(self.params.groups_kept, at_least))

    def _label_logits(self, text: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
        return shortlist_logits(self._hidden(text), self.table, ids, mask, form=self.params.logits)

    def _hidden(self, text: Tensor) -> Tensor:
        hidden: Tensor = self.bottleneck(text)
        return hidden.sigmoid() if self.params.bottleneck_sigmoid else hidden


def _numpy(values: Tensor) -> Float32:
    array: Float32 = values.detach().float().cpu().numpy()
    return array
