"""The matcher of X-Transformer: which clusters of labels a text needs.

It only knows clusters, so its "labels" are the numbers of clusters. A linear ranker then orders the
labels of the best clusters (``ranking.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.arrays import CSR, Float32
from labelgrove.core.params import Params, param
from labelgrove.errors import ConfigError
from labelgrove.nn.heads.layers import NodeLogit, TopLabels, as_numpy, log_odds, top_labels
from labelgrove.nn.heads.losses import LossKind, full_losses
from labelgrove.nn.heads.ragged import RaggedLabels


@dataclass
class MatcherParams(Params):
    """The head over clusters."""

    loss: LossKind = param("squared_hinge", help="loss per cluster; published: squared_hinge")
    dropout: float = param(0.1, ge=0, le=1, help="share of the text vector dropped in training")
    standardise: bool = param(
        True, help="text vectors start at mean 0, deviation 1; published: false"
    )
    priors: bool = param(True, help="biases start from frequencies; published: false")


class MatcherNet(nn.Module):
    """From a text's vector to a margin for each cluster."""

    def __init__(self, width: int, clusters: int, params: MatcherParams | None = None) -> None:
        super().__init__()
        self.params = (params or MatcherParams()).validate("matcher")
        self.clusters = nn.Linear(width, clusters)
        nn.init.normal_(self.clusters.weight, std=0.02)
        nn.init.zeros_(self.clusters.bias)

    @torch.no_grad()
    def start_from(self, labels: CSR) -> None:
        """Sets the biases by how many documents need each cluster, unless ``priors`` is off."""
        if not self.params.priors:
            return
        counts = np.diff(labels.tocsc().indptr)
        if self.params.loss == "bce":
            self.clusters.bias.copy_(log_odds(counts, labels.shape[0]))
            return
        # p (1 - z)^2 + (1 - p) (1 + z)^2 has its minimum at z = 2 p - 1.
        self.clusters.bias.copy_(torch.as_tensor(2.0 * counts / max(labels.shape[0], 1) - 1.0))

    def loss(
        self, states: Sequence[Tensor], positives: RaggedLabels
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over documents and clusters; it does not count labels in a cluster."""
        text = functional.dropout(self.text(states), self.params.dropout, self.training)
        truth = positives.padded().sort(dim=1).values
        total = full_losses(self.clusters(text), truth, kind=self.params.loss).mean()
        return total, {"loss": total.detach()}

    def allowing(self, allowed: npt.NDArray[np.bool_]) -> Tensor:
        """The argument ``allowed`` of :meth:`predict`, from a flag per cluster."""
        return torch.from_numpy(allowed).to(self.clusters.weight.device)

    def predict(
        self,
        states: Sequence[Tensor],
        k: int,
        *,
        enough: bool = False,
        allowed: Tensor | None = None,
    ) -> TopLabels:
        """The ``k`` best of the ``allowed`` clusters and their margins, without dropout."""
        with torch.no_grad():
            return top_labels(self.clusters(self.text(states)), None, allowed, k)

    def path(self, states: Sequence[Tensor], column: int) -> list[NodeLogit]:
        """The documents' margins for one cluster."""
        weight, bias = self.clusters.weight[column], self.clusters.bias[column]
        margins = self.text(states) @ weight + bias
        width = self.clusters.out_features
        return [NodeLogit(1, column, width, margins, float(bias.detach()), True)]

    def shortlist_recall(self, states: Sequence[Tensor], positives: RaggedLabels) -> Tensor:
        """(true clusters, true clusters): the matcher scores all of them."""
        count = positives.indptr[-1]
        return torch.stack([count, count])[None]

    @property
    def text_width(self) -> int:
        """Size of :meth:`text`."""
        return self.clusters.in_features

    def text(self, states: Sequence[Tensor]) -> Tensor:
        """What the head reads, without dropout: the text vector."""
        if len(states) != 1:
            raise ConfigError(f"the matcher reads the states of one layer, got {len(states)}")
        return states[0]

    def output_layer(self) -> tuple[Float32, Float32]:
        """Weights (clusters x width) and biases."""
        return as_numpy(self.clusters.weight), as_numpy(self.clusters.bias)
