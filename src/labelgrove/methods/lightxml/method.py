"""LightXML (Jiang et al., AAAI 2021): an encoder fine-tuned with dynamic negative sampling.

The paper's ablation compares dynamic negatives with static ones (S and BS), after the class here:
1. The encoder learns the groups alone. The best groups that it finds for a document are those of
   the document's candidates from now on.
2. Started from that encoder, another one learns the labels alone, among these candidates.
3. "static" keeps the second encoder, and a new head over the groups is trained on it as it is.
   "static-two" keeps both: the first finds the groups, the second the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from labelgrove.core.aliases import Table
from labelgrove.core.arrays import CSR
from labelgrove.core.callbacks import Reporter
from labelgrove.core.params import AutoFloat
from labelgrove.core.part import Part
from labelgrove.core.processes import process_count
from labelgrove.data.corpus import Corpus
from labelgrove.disk.stages import CachedResult, Session, Stages
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods import networks, neural
from labelgrove.methods.base import Model, Workers
from labelgrove.methods.cost_estimate import CostEstimate, expected_widths
from labelgrove.methods.defaults import TrainingNeeds
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.lightxml.net import OF_GROUPS, LightXmlNet, LightXmlParams, two_levels
from labelgrove.methods.networks import layer_arrays
from labelgrove.methods.neural import joined_histories, learn, make_batches, make_runner
from labelgrove.methods.preparation import Prepared, TrainingExamples
from labelgrove.methods.reranking import Reranker, RerankParams, shortlist_matrix
from labelgrove.methods.settings import Group, LabelTexts, group
from labelgrove.methods.terms import FeatureChoice
from labelgrove.methods.xrtransformer.net import LevelBatch, LevelBatches
from labelgrove.nn.batches import Batch, PackedBatch
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.heads.full import ONE_PROCESS
from labelgrove.nn.network import MakeHeads, Network, network_from_part, network_part
from labelgrove.nn.training.devices import choose_device, derived_seed
from labelgrove.nn.training.loop import Task
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.negatives import targets
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import TfidfParams

RECALL_PREFIX = "recall/"  # of the first encoder's arrays, where there are two


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
        network = CachedResult(lambda: stored_network(trained.value, heads), trained.key)
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
            lambda: StaticTraining(examples.value, same, self.training, seed),
            examples=examples,
            heads=same,
            training=self.training,
            seed=seed,
        )
        recall = stages("network-groups", train_groups, shared=shared, encoder=data.encoder)
        labels = stages("network-labels", train_labels, shared=shared, recall=recall, tree=tree)
        if self.heads.negatives == "static-two":
            return stages.derive(
                lambda: kept_both(recall.value, labels.value), recall=recall, labels=labels
            )
        return stages("network", train_groups_again, shared=shared, recall=recall, labels=labels)

    def resolve_defaults(self, corpus: Corpus) -> Self:
        return neural.resolve_defaults(self, corpus, TrainingNeeds(dropouts=(0.3, 0.5)))

    def exported_parts(self) -> ExportedParts:
        if isinstance(self.network_, TwoEncoders):
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
        layers = 1 if self.heads.groups_labels(len(corpus.index)) else self.heads.layers
        copies = 3 if self.heads.is_full else 5  # no gradients and moments
        return neural.estimate_memory(self, corpus, layers=layers, copies=copies)

    def parts(self) -> dict[str, Part]:
        parts = networks.parts(self)
        if isinstance(self.network_, TwoEncoders):
            recall = network_part(self.network_.recall, {})
            parts["network"] = with_recall(parts["network"], recall)
        return parts

    def _restore(self, parts: Mapping[str, Part]) -> None:
        self.tree_ = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
        heads = LightXmlHeads(len(self.index_), self.tree_, self.heads)
        self.network_ = stored_network(parts["network"], heads)
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
    ) -> tuple[nn.Module, Sequence[int]]:
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


class TwoEncoders(Network):
    """Gives the heads the states of an encoder for the labels, then of one for the groups."""

    def __init__(self, network: Network, recall: Network) -> None:
        super().__init__(network.encoder, network.heads, network.layers)
        for name in ("mean", "scale"):
            getattr(self, name).copy_(getattr(network, name))
        self.recall = recall

    def states(self, batch: Batch | PackedBatch) -> list[Tensor]:
        """One vector per document, encoder and layer."""
        return super().states(batch) + self.recall.states(batch)


def stored_network(part: Part, heads: MakeHeads) -> Network:
    """The network of a part, with its second encoder if there is one."""
    network = network_from_part(part, heads)
    if "recall" not in part.config:
        return network
    arrays = {
        n.removeprefix(RECALL_PREFIX): a
        for n, a in part.arrays.items()
        if n.startswith(RECALL_PREFIX)
    }
    recall = network_from_part(
        Part({"encoder": part.config["recall"]}, arrays), lambda *_: (nn.Identity(), network.layers)
    )
    return TwoEncoders(network, recall).eval()


def with_recall(labels: Part, recall: Part) -> Part:
    """A network's part with the encoder of another one, which finds the groups."""
    arrays = {RECALL_PREFIX + n: a for n, a in recall.arrays.items() if not n.startswith("heads/")}
    return Part({**labels.config, "recall": recall.config["encoder"]}, labels.arrays | arrays)


def kept_both(recall: Part, labels: Part) -> Part:
    """The result of "static-two"."""
    part = with_recall(labels, recall)
    history = joined_histories([recall.config["story"], labels.config["story"]])
    return Part({**part.config, "story": history}, part.arrays)


@dataclass(frozen=True)
class StaticTraining:
    """What all three trainings share."""

    examples: TrainingExamples
    heads: MakeHeads
    training: TrainingParams
    seed: int


def train_groups(shared: StaticTraining, encoder: Encoder, *, session: Session) -> Part:
    """Fine-tunes an encoder on the groups alone; gives a network's part."""
    examples = shared.examples
    with torch.random.fork_rng([]):
        torch.manual_seed(derived_seed(shared.seed, 0))
        network = Network(encoder, *shared.heads(encoder, choose_device()))
    network.heads.start_from(examples.labels)
    if network.heads.params.standardise:
        make_runner(network, shared.training.precision).standardise(examples.tokens)
    history = _learn(shared, network, _group_loss, None, session)
    return network_part(network, history)


def train_labels(
    shared: StaticTraining, recall: Part, tree: LabelTree, *, session: Session
) -> Part:
    """Fine-tunes the encoder of ``recall`` on the labels of the groups that it finds."""
    network, examples = network_from_part(recall, shared.heads), shared.examples
    above = best_groups(network, examples, shared.training.precision)
    if network.heads.params.truth == "forced":
        above = above.maximum(targets(examples.labels, two_levels(tree))[0])
    history = _learn(shared, network, _label_loss, above, session)
    return network_part(network, history)


def train_groups_again(
    shared: StaticTraining, recall: Part, labels: Part, *, session: Session
) -> Part:
    """Trains a new head over the groups on the encoder that has learnt the labels."""
    network = network_from_part(labels, shared.heads)
    with torch.random.fork_rng([]):
        torch.manual_seed(derived_seed(shared.seed, 1))
        network.heads.groups.reset_parameters()
    network.heads.start_from(shared.examples.labels, groups_only=True)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith("heads.groups."))
    history = _learn(shared, network, _frozen_group_loss, None, session)
    histories = [recall.config["story"], labels.config["story"], history]
    return network_part(network, joined_histories(histories))


def best_groups(network: Network, examples: TrainingExamples, precision: str) -> CSR:
    """Documents x groups: the groups that the network finds for the training documents."""
    groups = network.heads.index.widths[0]
    most = min(network.heads.params.groups_kept, groups)
    columns = np.full((len(examples.tokens), most), -1, np.int32)

    def best(states: list[Tensor]) -> Tensor:
        kept, mask = network.heads.best_groups(states)
        found: Tensor = kept.masked_fill(~mask, -1)
        return found

    make_runner(network, precision).fill(columns, examples.tokens, best)
    return shortlist_matrix(columns, groups)


def _learn(
    shared: StaticTraining,
    network: Network,
    loss: Callable[[Network, LevelBatch], Tensor],
    above: CSR | None,
    session: Session,
) -> Table:
    """Trains on one part of the loss, which ranks no labels: the last weights are kept."""
    examples, training, seed = shared.examples, shared.training, shared.seed
    batches = make_batches(examples.tokens, network.encoder, training, seed)
    task = Task(LevelBatches(batches, examples.labels, above), loss)
    return learn(network.to(choose_device()), task, training, seed, session)


def _group_loss(network: Network, batch: LevelBatch) -> Any:
    return network.heads.group_loss(network.states(batch.batch), batch.labels)


def _label_loss(network: Network, batch: LevelBatch) -> Any:
    return network.heads.label_loss(network.states(batch.batch), batch.labels, batch.above)


def _frozen_group_loss(network: Network, batch: LevelBatch) -> Any:
    network.encoder.eval()  # what does not learn needs no dropout
    with torch.no_grad():
        states = network.states(batch.batch)
    return network.heads.group_loss(states, batch.labels)
