"""LightXML with static negatives, as its paper compares them (S and BS in its ablation).

1. The encoder learns the groups alone. The best groups that it finds for a document are those of
   the document's candidates from now on.
2. Started from that encoder, another one learns the labels alone, among these candidates.
3. "static" keeps the second encoder, and a new head over the groups is trained on it as it is.
   "static-two" keeps both: the first finds the groups, the second the labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelgrove.core.aliases import Table
from labelgrove.core.arrays import CSR
from labelgrove.core.part import Part
from labelgrove.disk.stages import Session
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.lightxml.net import two_levels
from labelgrove.methods.neural import joined_histories, learn, make_batches, make_runner
from labelgrove.methods.preparation import TrainingExamples
from labelgrove.methods.reranking import shortlist_matrix
from labelgrove.methods.xrtransformer.net import LevelBatch, LevelBatches
from labelgrove.nn.batches import Batch, PackedBatch
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.network import MakeHeads, Network, network_from_part, network_part
from labelgrove.nn.training.devices import choose_device, derived_seed
from labelgrove.nn.training.loop import LoopParams, Task
from labelgrove.ranking.negatives import targets

PREFIX = "recall/"  # of the first encoder's arrays, where there are two


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
    arrays = {n.removeprefix(PREFIX): a for n, a in part.arrays.items() if n.startswith(PREFIX)}
    recall = network_from_part(
        Part({"encoder": part.config["recall"]}, arrays), lambda *_: (nn.Identity(), network.layers)
    )
    return TwoEncoders(network, recall).eval()


def with_recall(labels: Part, recall: Part) -> Part:
    """A network's part with the encoder of another one, which finds the groups."""
    arrays = {PREFIX + n: a for n, a in recall.arrays.items() if not n.startswith("heads/")}
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
    training: LoopParams
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
