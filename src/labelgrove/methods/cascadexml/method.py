"""CascadeXML (Kharbanda et al., NeurIPS 2022): all resolutions of a label tree learnt at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.disk.stages import Stages
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.cascadexml.net import CascadeNet, mix_name
from labelgrove.methods.cascadexml.params import (
    CascadeParams,
    cascade_clusters,
    cascade_layers,
    cascade_tree_params,
    idle_settings,
)
from labelgrove.methods.networks import NetworkEstimator, layer_arrays
from labelgrove.methods.outline import Outline, expected_widths
from labelgrove.methods.settings import Group, group
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import layer_count


@dataclass(kw_only=True, eq=False, repr=False)
class CascadeXML(NetworkEstimator):
    """Clusters of labels read an encoder's middle layers, labels its last; each level shortlists.

    ``tree`` says what labels are clustered by; the widths of its levels come from ``heads``.
    Scores are probabilities (see ``heads.score``).
    """

    method: ClassVar[str] = "cascadexml"

    heads: Group[CascadeParams] = group(CascadeParams)

    def _fit(self, corpus: Corpus, stages: Stages) -> None:
        shape = cascade_tree_params(len(corpus.index), self.heads, self.tree)
        depth = layer_count(self.encoder.folder())
        cascade_layers(depth, len(self._clusters(len(corpus.index))) + 1, self.heads.layers)
        idle = idle_settings(self.heads, len(corpus.index))
        if idle := [name for name in idle if name not in self.derived_]:
            few = f"{len(corpus.index):,} labels get no clusters"
            stages.reporter.message(f"{', '.join(idle)}: no effect; {few}")
        linear = self._proposes and not self.return_held_out
        data = self._prepare(corpus, stages, baseline=self.compares, linear=linear)
        tree = data.tree(stages, shape, seed=self.random_state, threads=self.n_jobs)
        heads = self._heads(len(corpus.index), tree.value)
        self._train(data, stages, heads, searched=tree.value, tree=tree)

    def _clusters(self, labels: int) -> tuple[int, ...]:
        widths = self.heads.clusters or cascade_clusters(labels)
        return tuple(width for width in widths if width < labels)

    def _heads(self, labels: int, tree: LabelTree | None) -> CascadeHeads:
        assert tree is not None
        return CascadeHeads(tree, self.heads)

    def _exported_heads(self) -> dict[str, Part]:
        heads = self.network_.heads
        config = {
            "reads": "levels",
            "joined": heads.joined,
            "sigmoid": False,
            "probabilities": True,
            "kept": None,
            "weighted": heads.params.score != "level",
            "path": heads.params.score == "path",
        }
        arrays: dict[str, Any] = {}
        for level, count in enumerate(heads.joined):
            if count > 1:
                arrays |= layer_arrays(f"read/{level}", heads.get_submodule(mix_name(level)))
        if len(heads.tables) == 1:
            weight, bias = heads.output_layer()
            arrays |= {"tables/0/weight": weight, "tables/0/bias": bias}
            return {"heads": Part(config, arrays)}
        for level, table in enumerate(heads.tables):
            arrays |= layer_arrays(f"tables/{level}", table)
        assert self.tree_ is not None
        kept = {"kept": list(heads.kept)}
        return {"heads": Part(config | kept, arrays), "tree": self.tree_.state()}

    def outline(self, documents: int, labels: int) -> Outline:
        """Clusters as the heads want them."""
        shape = cascade_tree_params(labels, self.heads, self.tree)
        return self._outline(documents, expected_widths(shape, labels), has_tree=True)

    def search_space(self) -> dict[str, Any]:
        """The training, the dropout of the heads and their shortlists."""
        dropout, kept = ["auto", None, 0.1, 0.2, 0.3, 0.5], ["auto", 32, 64, 128, 256]
        return super().search_space() | {"heads.dropout": dropout, "heads.kept": kept}

    def estimate_memory(self, corpus: Corpus) -> int:
        return self._memory(corpus)


@dataclass(frozen=True)
class CascadeHeads:
    """Makes the heads over all levels of a tree."""

    tree: LabelTree
    params: CascadeParams

    def __call__(
        self, encoder: Encoder, device: torch.device | None = None
    ) -> tuple[torch.nn.Module, Sequence[int]]:
        tree, params = self.tree, self.params
        levels = cascade_layers(encoder.depth, len(tree.widths), params.layers)
        net = CascadeNet(encoder.width, tree, params, device=device)
        return net, [layer for level in levels for layer in level]
