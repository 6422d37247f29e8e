"""LightXML (Jiang et al., AAAI 2021): an encoder fine-tuned with dynamic negative sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch

from labelgrove.core.aliases import Table
from labelgrove.core.callbacks import Reporter
from labelgrove.core.params import AutoFloat
from labelgrove.core.part import Part
from labelgrove.core.processes import process_count
from labelgrove.data.corpus import Corpus
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods import networks, neural
from labelgrove.methods.base import Model, Workers
from labelgrove.methods.cost_estimate import CostEstimate, expected_widths
from labelgrove.methods.defaults import TrainingNeeds
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.lightxml import static
from labelgrove.methods.lightxml.net import OF_GROUPS, LightXmlNet, LightXmlParams, two_levels
from labelgrove.methods.networks import layer_arrays
from labelgrove.methods.preparation import Prepared
from labelgrove.methods.reranking import Reranker, RerankParams
from labelgrove.methods.settings import Group, LabelTexts, group
from labelgrove.methods.terms import FeatureChoice
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.heads.full import ONE_PROCESS
from labelgrove.nn.network import network_part
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams


@dataclass(kw_only=True, eq=False, repr=False)
class LightXML(Model):
    """The last layers of an encoder, read by one head over all labels, or by groups and labels.

    ``rerank`` is a linear ranker over the shortlists of the network and of the linear method, with
    settings in ``ranker``. Scores are probabilities of labels (``heads.score``).
    ``methods/preparation.py`` explains the settings that all methods with an encoder have.
    """

    method: ClassVar[str] = "lightxml"
    workers: ClassVar[Workers] = "processes"

    encoder: Group[EncoderParams] = group(EncoderParams)
    training: Group[TrainingParams] = group(TrainingParams)
    heads: Group[LightXmlParams] = group(LightXmlParams)
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

    def _train(self, corpus: Corpus, stages: Stages) -> None:
        networks.check(self)
        if self.heads.is_full and process_count() > 1:
            raise ConfigError(ONE_PROCESS)
        labels = len(corpus.index)
        grouped = self.heads.groups_labels(labels)
        data = networks.prepare(self, corpus, stages)
        say_what_is_idle(self.heads, labels, data.encoder.value.depth, stages.reporter)
        tree = None
        if grouped or self.rerank.reranks:  # of the groups, or for the ranker alone
            tree = data.tree(stages, self.tree, seed=self.random_state)
        groups = tree.value if tree is not None and grouped else None
        heads = LightXmlHeads(labels, groups, self.heads)
        if groups is None or self.heads.negatives == "dynamic":
            trained = networks.train_network(self, data, stages, heads)
        else:
            trained = self._train_static(data, stages, heads, groups)
        network = CachedResult(lambda: static.stored_network(trained.value, heads), trained.key)
        self.tree_, self.network_ = groups, network.value
        self.reranker_ = networks.rerank(self, data, stages, network, tree)
        networks.remember(self, data, stages, trained.value.config["story"])

    def _train_static(
        self, data: Prepared, stages: Stages, heads: LightXmlHeads, tree: LabelTree
    ) -> CachedResult[Part]:
        """Groups first, then labels among the groups that were found (the paper's ablation)."""
        stages.reporter.message(
            "heads.negatives: static trainings keep their last weights; training.keep and "
            ".evaluations_per_epoch have no effect"
        )
        # Both kinds of static negatives share the first two trainings.
        same = replace(heads, params=replace(heads.params, negatives="static"))
        examples, seed = data.examples(stages), self.random_state
        shared = stages.derive(
            lambda: static.StaticTraining(examples.value, same, self.training, seed),
            examples=examples,
            heads=same,
            training=self.training,
            seed=seed,
        )
        recall = stages("network-groups", static.train_groups, shared=shared, encoder=data.encoder)
        labels = stages(
            "network-labels", static.train_labels, shared=shared, recall=recall, tree=tree
        )
        if self.heads.negatives == "static-two":
            return stages.derive(
                lambda: static.kept_both(recall.value, labels.value), recall=recall, labels=labels
            )
        return stages(
            "network", static.train_groups_again, shared=shared, recall=recall, labels=labels
        )

    def resolve_defaults(self, corpus: Corpus) -> Self:
        return neural.resolve_defaults(self, corpus, TrainingNeeds(dropouts=(0.3, 0.5)))

    def exported_parts(self) -> ExportedParts:
        if isinstance(self.network_, static.TwoEncoders):
            raise UnsupportedError(
                "a lightxml model with two encoders cannot be exported; train one with "
                "heads.negatives=dynamic"
            )
        ranker = {} if self.reranker_ is None else self.reranker_.parts()
        return networks.network_pieces(self.network_, self._exported_heads() | ranker)

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

    def cost_estimate(self, documents: int, labels: int) -> CostEstimate:
        one_head = not self.heads.groups_labels(labels)
        widths = (labels,) if one_head else expected_widths(self.tree, labels)
        has_tree = not one_head or self.rerank.reranks
        cost_estimate = networks.cost_estimate(self, documents, widths, has_tree=has_tree)
        if one_head or self.heads.negatives == "dynamic" or cost_estimate.encoder is None:
            return cost_estimate
        learns = cost_estimate.encoder.learns  # twice, and a head alone reads as often for "static"
        reads = learns + 1 if self.heads.negatives == "static" else 1
        work = replace(
            cost_estimate.encoder, learns=2 * learns, reads=cost_estimate.encoder.reads + reads
        )
        return replace(cost_estimate, encoder=work)

    def search_space(self) -> Table:
        return networks.search_space(self) | {"heads.dropout": {"low": 0.0, "high": 0.6}}

    def estimate_memory(self, corpus: Corpus) -> int:
        grouped = self.heads.groups_labels(len(corpus.index))
        return neural.estimate_memory(self, corpus, layers=1 if grouped else self.heads.layers)

    def parts(self) -> dict[str, Part]:
        parts = networks.parts(self)
        if isinstance(self.network_, static.TwoEncoders):
            recall = network_part(self.network_.recall, {})
            parts["network"] = static.with_recall(parts["network"], recall)
        return parts

    def _restore(self, parts: Mapping[str, Part]) -> None:
        self.tree_ = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
        heads = LightXmlHeads(len(self.index_), self.tree_, self.heads)
        self.network_ = static.stored_network(parts["network"], heads)
        self.reranker_ = Reranker.from_parts(parts, self.rerank, self.facts_.given)
        self.history_ = parts["network"].config["story"]
        self.report_ = parts["network"].config["report"] or {}


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


def say_what_is_idle(params: LightXmlParams, labels: int, depth: int, reporter: Reporter) -> None:
    """Names settings that do nothing for so many labels and an encoder of this depth."""
    idle = params.changed(OF_GROUPS, "heads")
    if idle and not params.groups_labels(labels):
        why = (
            "heads.full=true" if params.is_full else f"heads.one_head_up_to={params.one_head_up_to}"
        )
        reporter.message(
            f"{', '.join(idle)}: no effect; {labels:,} labels get one head without groups ({why})"
        )
    if params.layers > max(depth, LightXmlParams().layers):
        reporter.message(f"heads.layers: the encoder has {depth} layers, and all of them are read")
