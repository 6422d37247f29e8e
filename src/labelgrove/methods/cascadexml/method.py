"""CascadeXML (Kharbanda et al., NeurIPS 2022): all resolutions of a label tree learnt at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Self

import torch

from labelgrove.core.aliases import Table
from labelgrove.core.params import AutoFloat
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods import networks, neural
from labelgrove.methods.base import Model, Workers
from labelgrove.methods.cascadexml.net import CascadeNet, CascadeParams, Layers, mix_name
from labelgrove.methods.cost_estimate import CostEstimate, expected_widths
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.networks import layer_arrays
from labelgrove.methods.reranking import Reranker, RerankParams
from labelgrove.methods.settings import Group, LabelTexts, group
from labelgrove.methods.terms import FeatureChoice
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import EncoderParams, layer_count
from labelgrove.nn.network import network_from_part
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams

LABELS_PER_CLUSTER, APART = 10, 8
FEWEST_CLUSTERS, MOST_CLUSTERS, CLUSTER_LEVELS = 100, 1500, 3


@dataclass(kw_only=True, eq=False, repr=False)
class CascadeXML(Model):
    """Clusters of labels read an encoder's middle layers, labels its last; each level shortlists.

    ``tree`` says what labels are clustered by; the widths of its levels come from ``heads``.
    ``rerank`` is a linear ranker over the shortlists of the network and of the linear method, with
    settings in ``ranker``. Scores are probabilities (see ``heads.score``).
    ``methods/preparation.py`` explains the settings that all methods with an encoder have.
    """

    method: ClassVar[str] = "cascadexml"
    workers: ClassVar[Workers] = "processes"

    encoder: Group[EncoderParams] = group(EncoderParams)
    training: Group[TrainingParams] = group(TrainingParams)
    heads: Group[CascadeParams] = group(CascadeParams)
    tree: Group[TreeParams] = group(TreeParams)
    tfidf: Group[TfidfParams] = group(TfidfParams)
    rerank: Group[RerankParams] = group(RerankParams)
    ranker: Group[RankerParams] = group(RankerParams, dense_C=networks.VECTORS_C)
    features: FeatureChoice = "auto"
    label_texts: LabelTexts = None
    held_out: AutoFloat = "auto"  # type: ignore[assignment]
    baseline: bool = True
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None

    fit = neural.fit
    _best_labels = networks.best_labels
    parts = networks.parts
    estimate_memory = neural.estimate_memory

    def _train(self, corpus: Corpus, stages: Stages) -> None:
        networks.check(self)
        labels = len(corpus.index)
        shape = cascade_tree_params(labels, self.heads, self.tree)
        depth = layer_count(self.encoder.folder())
        cascade_layers(depth, len(self._clusters(labels)) + 1, self.heads.layers)
        idle = [n for n in idle_settings(self.heads, labels) if n not in self.derived_]
        if idle:
            few = f"{labels:,} labels get no clusters"
            stages.reporter.message(f"{', '.join(idle)}: no effect; {few}")
        data = networks.prepare(self, corpus, stages)
        tree = data.tree(stages, shape, seed=self.random_state)
        heads = CascadeHeads(tree.value, self.heads)
        trained = networks.train_network(self, data, stages, heads)
        network = CachedResult(lambda: network_from_part(trained.value, heads), trained.key)
        self.tree_, self.network_ = tree.value, network.value
        self.reranker_ = networks.rerank(self, data, stages, network, tree)
        networks.remember(self, data, stages, trained.value.config["story"])

    def resolve_defaults(self, corpus: Corpus) -> Self:
        return neural.resolve_defaults(self, corpus, clusters=self._clusters(len(corpus.index)))

    def _clusters(self, labels: int) -> tuple[int, ...]:
        """Clusters per level, without the labels."""
        widths = self.heads.clusters or cascade_clusters(labels)
        return tuple(width for width in widths if width < labels)

    def exported_parts(self) -> ExportedParts:
        ranker = {} if self.reranker_ is None else self.reranker_.parts()
        return networks.network_pieces(self.network_, self._exported_heads() | ranker)

    def _exported_heads(self) -> dict[str, Part]:
        heads = self.network_.heads
        config = {
            "reads": "levels",
            "joined": heads.joined,
            "sigmoid": False,
            "probabilities": True,
            "kept": None,
            "weighted": heads.params.score != "level",
        }
        arrays: Table = {}
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

    def cost_estimate(self, documents: int, labels: int) -> CostEstimate:
        shape = cascade_tree_params(labels, self.heads, self.tree)
        return networks.cost_estimate(self, documents, expected_widths(shape, labels))

    def search_space(self) -> Table:
        dropout, kept = ["auto", None, 0.1, 0.2, 0.3, 0.5], ["auto", 32, 64, 128, 256]
        return networks.search_space(self) | {"heads.dropout": dropout, "heads.kept": kept}

    def _restore(self, parts: Mapping[str, Part]) -> None:
        self.tree_ = tree = LabelTree.from_state(parts["tree"])
        self.network_ = network_from_part(parts["network"], CascadeHeads(tree, self.heads))
        self.reranker_ = Reranker.from_parts(parts, self.rerank, self.facts_.given)
        self.history_ = parts["network"].config["story"]
        self.report_ = parts["network"].config["report"] or {}


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


def cascade_layers(depth: int, levels: int, kind: Layers = "spread") -> list[tuple[int, ...]]:
    """Which layers of an encoder each level reads; layer ``depth`` is the last, 0 the embeddings.

    Levels are a sixth of the depth apart, with the labels at the end; the first level reads two
    layers. With ``kind="last"``, all are at the end. A list says it for each level.

    >>> cascade_layers(12, 4), cascade_layers(6, 3)
    ([(5, 6), (8,), (10,), (12,)], [(3, 4), (5,), (6,)])
    >>> cascade_layers(12, 3, [[9, 10], 11, 12])
    [(9, 10), (11,), (12,)]
    """
    if depth < 1 or levels < 1:
        raise ConfigError(f"CascadeXML needs layers and levels, got {depth} and {levels}")
    if isinstance(kind, list):
        chosen = [tuple(own) if isinstance(own, list) else (own,) for own in kind]
        if len(chosen) != levels or not all(chosen):
            raise ConfigError(
                f"heads.layers: must have a layer, or a list of layers, for each of {levels} "
                f"levels, got {kind}"
            )
        if outside := [layer for own in chosen for layer in own if not 0 <= layer <= depth]:
            raise ConfigError(
                f"heads.layers: the encoder has layers 1 to {depth} (0 are its embeddings), "
                f"got {outside[0]}"
            )
        return chosen
    apart = 1 / 6 if kind == "spread" else 0.0
    shares = [1 - (levels - 1 - level) * apart for level in range(levels)]
    layers = [max(1, math.floor(depth * share + 0.5)) for share in shares]
    return [(layers[0] - 1, layers[0]), *((layer,) for layer in layers[1:])]


def cascade_clusters(labels: int) -> tuple[int, ...]:
    """Clusters per cluster level: powers of two; a small label set has none."""
    if labels < FEWEST_CLUSTERS * LABELS_PER_CLUSTER:
        return ()
    widths = [2 ** round(math.log2(labels / LABELS_PER_CLUSTER))]
    while widths[0] > MOST_CLUSTERS or (
        len(widths) < CLUSTER_LEVELS and widths[0] // APART >= FEWEST_CLUSTERS
    ):
        widths.insert(0, widths[0] // APART)
    return tuple(widths)


def cascade_tree_params(labels: int, params: CascadeParams, tree: TreeParams) -> TreeParams:
    """``tree`` with the levels of ``params.clusters`` or :func:`cascade_clusters`."""
    if tree.kind != "balanced":
        raise ConfigError(f"tree.kind: CascadeXML needs a balanced tree, got {tree.kind!r}")
    widths = params.clusters or cascade_clusters(labels)
    shape: Table = {"max_leaf_size": max(1, labels)}
    coarser = [width for width in widths if width < labels]
    _check_lists(params, len(coarser), labels)
    if widths:
        steps = {after / before for before, after in pairwise(widths)} or {APART}
        if len(steps) > 1 or min(steps) < 2 or any(width & (width - 1) for width in widths):
            raise ConfigError(
                "heads.clusters: must be powers of two that grow by the same factor, "
                f"got {list(widths)}"
            )
        if coarser:
            leaf = -(-labels // coarser[-1])
            shape = {"branching": int(min(steps)), "max_leaf_size": leaf, "top_width": coarser[0]}
    return TreeParams(**tree.get_params() | shape)


def idle_settings(params: CascadeParams, labels: int) -> list[str]:
    """Names of changed settings that have no effect, because so few labels get no clusters.

    >>> idle_settings(CascadeParams(clusters=[512], kept=64), 100)
    ['heads.clusters', 'heads.kept']
    """
    if any(width < labels for width in params.clusters or cascade_clusters(labels)):
        return []
    return params.changed(("clusters", "kept", "truth", "score", "rescale"), "heads")


def _check_lists(params: CascadeParams, clusters: int, labels: int) -> None:
    """Refuses, before any training, lists that do not fit the number of levels."""
    all_levels = {"layers": "'spread'", "dropout": "a single number", "level_weights": "[]"}
    for name, serves in ({"kept": "a single number"} | all_levels).items():
        values, levels = getattr(params, name), clusters + (name in all_levels)
        if isinstance(values, list) and values and len(values) != levels:
            raise ConfigError(
                f"heads.{name}: must have {levels} values, got {len(values)}: {labels:,} labels "
                f"get {clusters} levels of clusters (heads.clusters), and the labels are one more "
                f"level; {serves} serves all levels"
            )
