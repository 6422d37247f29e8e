"""LightXML (Jiang et al., AAAI 2021): an encoder fine-tuned with dynamic negative sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.disk.stages import Stages
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.defaults import Needs
from labelgrove.methods.lightxml.net import OF_GROUPS, LightXmlNet, LightXmlParams, two_levels
from labelgrove.methods.networks import NetworkEstimator, layer_arrays
from labelgrove.model.outline import Outline, expected_widths
from labelgrove.model.settings import group
from labelgrove.nn.encoders.encoder import Encoder


@dataclass(kw_only=True, eq=False, repr=False)
class LightXML(NetworkEstimator):
    """The last layers of an encoder, read by one head over all labels, or by groups and labels.

    Scores are probabilities of labels (``heads.score``).
    """

    method: ClassVar[str] = "lightxml"
    needs: ClassVar[Needs] = Needs(dropouts=(0.3, 0.5))

    heads: LightXmlParams = group(LightXmlParams)

    def _fit(self, corpus: Corpus, stages: Stages) -> None:
        grouped = len(corpus.index) > self.heads.one_head_up_to
        if not grouped and (idle := self.heads.changed(OF_GROUPS, "heads")):
            stages.reporter.message(
                f"{', '.join(idle)}: no effect; {len(corpus.index):,} labels get one head without "
                f"groups (heads.one_head_up_to={self.heads.one_head_up_to})"
            )
        data = self._prepare(corpus, stages, baseline=self.compares)
        depth = data.encoder.value.depth
        if self.heads.layers > max(depth, LightXmlParams().layers):
            stages.reporter.message(
                f"heads.layers: the encoder has {depth} layers, and all of them are read"
            )
        tree = None
        if grouped or self.reranks:  # of the groups, or for the ranker alone
            tree = data.tree(stages, self.tree, seed=self.random_state, threads=self.n_jobs)
        groups = tree.value if tree is not None and grouped else None
        heads = self._heads(len(corpus.index), groups)
        self._train(data, stages, heads, searched=groups, tree=tree)

    def _heads(self, labels: int, tree: LabelTree | None) -> LightXmlHeads:
        return LightXmlHeads(labels, tree, self.heads)

    def _exported_heads(self) -> dict[str, Part]:
        heads = self.network_.heads
        if heads.index is None:
            weight, bias = heads.output_layer()
            config = {"reads": "joined", "sigmoid": False, "probabilities": True, "kept": None}
            arrays = {"tables/0/weight": weight, "tables/0/bias": bias}
            return {"heads": Part(config, arrays)}
        config = {
            "reads": "bottleneck",
            "sigmoid": heads.params.bottleneck_sigmoid,
            "probabilities": True,
            "kept": [heads.params.groups_kept],
            "weighted": heads.params.score == "weighted",
        }
        arrays = layer_arrays("read", heads.bottleneck) | layer_arrays("tables/0", heads.groups)
        assert self.tree_ is not None
        return {
            "heads": Part(config, arrays | layer_arrays("tables/1", heads.table)),
            "tree": two_levels(self.tree_).state(),
        }

    def outline(self, documents: int, labels: int) -> Outline:
        """One head, or groups below a tree."""
        one_head = labels <= self.heads.one_head_up_to
        widths = (labels,) if one_head else expected_widths(self.tree, labels)
        return self._outline(documents, widths, has_tree=not one_head or self.reranks)

    def search_space(self) -> dict[str, Any]:
        """The training and the dropout of the heads."""
        return super().search_space() | {"heads.dropout": {"low": 0.0, "high": 0.6}}

    def estimate_memory(self, corpus: Corpus) -> int:
        one_head = len(corpus.index) <= self.heads.one_head_up_to
        return self._memory(corpus, layers=self.heads.layers if one_head else 1)


@dataclass(frozen=True)
class LightXmlHeads:
    """Makes the heads over so many labels; with a ``tree``, its last clusters are the groups."""

    labels: int
    tree: LabelTree | None
    params: LightXmlParams

    def __call__(
        self, encoder: Encoder, device: torch.device | None = None
    ) -> tuple[torch.nn.Module, Sequence[int]]:
        layers = min(self.params.layers, encoder.depth)
        params = replace(self.params, layers=layers)
        net = LightXmlNet(encoder.width, self.labels, self.tree, params, device=device)
        return net, range(-layers, 0)
