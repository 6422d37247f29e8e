"""LightXML (Jiang et al., AAAI 2021): an encoder fine-tuned with dynamic negative sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from labelgrove.core.memory import format_size
from labelgrove.core.part import Part
from labelgrove.core.processes import process_count
from labelgrove.data.corpus import Corpus
from labelgrove.disk.stages import Made, Stages
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.defaults import Needs
from labelgrove.methods.explaining.explanation import Paths, Question
from labelgrove.methods.interface import Pieces
from labelgrove.methods.lightxml.net import OF_GROUPS, LightXmlNet, LightXmlParams, two_levels
from labelgrove.methods.lightxml.static import (
    Lesson,
    TwoEncoders,
    kept_both,
    train_groups,
    train_groups_again,
    train_labels,
    two_encoders,
    with_recall,
)
from labelgrove.methods.networks import NetworkEstimator, layer_arrays
from labelgrove.methods.outline import Outline, expected_widths
from labelgrove.methods.preparation import Prepared
from labelgrove.methods.settings import Group, group
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.heads.full import ONE_PROCESS, weight_type
from labelgrove.nn.network import MakeHeads, Network, network_part
from labelgrove.nn.training.devices import choose_device


@dataclass(kw_only=True, eq=False, repr=False)
class LightXML(NetworkEstimator):
    """The last layers of an encoder, read by one head over all labels, or by groups and labels.

    Scores are probabilities of labels (``heads.score``).
    """

    method: ClassVar[str] = "lightxml"
    needs: ClassVar[Needs] = Needs(dropouts=(0.3, 0.5))

    heads: Group[LightXmlParams] = group(LightXmlParams)

    def _check(self) -> None:
        super()._check()
        if self.heads.is_full and process_count() > 1 and not self.heads.divides:
            raise ConfigError(ONE_PROCESS)
        if self.heads.sharded and self.heads.negatives != "dynamic":
            raise ConfigError(
                "heads.sharded: trainings with static negatives do not divide tables; set "
                "heads.negatives=dynamic, or leave it unset"
            )
        if self.heads.name_logit and self.heads.negatives != "dynamic":
            raise ConfigError(
                "heads.name_logit: trainings with static negatives do not read names; set "
                "heads.negatives=dynamic, or leave it at 0"
            )

    def _fit(self, corpus: Corpus, stages: Stages) -> None:
        grouped = self.heads.groups_labels(len(corpus.index))
        if not grouped and (idle := self.heads.changed(OF_GROUPS, "heads")):
            full, most = self.heads.is_full, self.heads.one_head_up_to
            stages.reporter.message(
                f"{', '.join(idle)}: no effect; {len(corpus.index):,} labels get one head without "
                f"groups ({'heads.full=true' if full else f'heads.one_head_up_to={most}'})"
            )
        linear = self._proposes and not self.return_held_out
        data = self._prepare(corpus, stages, baseline=self.compares, linear=linear)
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
        if self.heads.is_full:
            width = data.encoder.value.width * min(self.heads.layers, depth)
            stages.reporter.message(self._size_of_full(len(corpus.index), width))
        self._train(data, stages, heads, searched=groups, tree=tree)

    def _heads(self, labels: int, tree: LabelTree | None) -> LightXmlHeads:
        return LightXmlHeads(labels, tree, self.heads)

    def _size_of_full(self, labels: int, width: int) -> str:
        kind = weight_type(choose_device(self.device))
        size = format_size(labels * (width * kind.itemsize + 4))
        chunk = min(self.heads.chunk, labels)
        return (
            f"heads.full: {labels:,} labels x {width:,} in {str(kind).removeprefix('torch.')}, "
            f"{size}, scored {chunk:,} labels at a time"
        )

    def _trained(self, data: Prepared, stages: Stages, heads: LightXmlHeads) -> Made[Part]:
        if heads.tree is None or self.heads.negatives == "dynamic":
            return super()._trained(data, stages, heads)
        stages.reporter.message(
            "heads.negatives: static trainings keep their last weights; training.keep, .patience "
            "and .evaluations_per_epoch have no effect"
        )
        # Both kinds of static negatives share the first two trainings.
        same = replace(heads, params=replace(heads.params, negatives="static"))
        examples, seed = data.examples(stages), self.random_state
        lesson = stages.derive(
            lambda: Lesson(examples.value, same, self.training, seed),
            examples=examples,
            heads=same,
            training=self.training,
            seed=seed,
        )
        run: dict[str, Any] = {"device": self.device, "reporter": stages.reporter}
        recall = stages("network-groups", train_groups, lesson=lesson, encoder=data.encoder, **run)
        labels = stages(
            "network-labels", train_labels, lesson=lesson, recall=recall, tree=heads.tree, **run
        )
        if self.heads.negatives == "static-two":
            return stages.derive(
                lambda: kept_both(recall.value, labels.value), recall=recall, labels=labels
            )
        return stages(
            "network", train_groups_again, lesson=lesson, recall=recall, labels=labels, **run
        )

    def _network(self, part: Part, heads: MakeHeads) -> Network:
        return two_encoders(part, super()._network(part, heads))

    def paths(self, question: Question) -> Paths:
        """Like that of other networks; refused for a model with two encoders."""
        self._refuse_two("explained")
        return super().paths(question)

    def pieces(self) -> Pieces:
        """Like that of other networks; refused for a model with two encoders."""
        self._refuse_two("exported")
        return super().pieces()

    def _refuse_two(self, what: str) -> None:
        if isinstance(self.network_, TwoEncoders):
            raise UnsupportedError(
                f"a lightxml model with two encoders cannot be {what}; train one with "
                "heads.negatives=dynamic"
            )

    def parts(self) -> dict[str, Part]:
        """Those of other networks, and the second encoder if there is one."""
        parts = super().parts()
        if isinstance(self.network_, TwoEncoders):
            recall = network_part(self.network_.recall, {})
            parts["network"] = with_recall(parts["network"], recall)
        return parts

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
        one_head = not self.heads.groups_labels(labels)
        widths = (labels,) if one_head else expected_widths(self.tree, labels)
        outline = self._outline(documents, widths, has_tree=not one_head or self.reranks)
        if one_head or self.heads.negatives == "dynamic" or outline.encoder is None:
            return outline
        learns = outline.encoder.learns  # twice, and a head alone reads as often for "static"
        reads = learns + 1 if self.heads.negatives == "static" else 1
        work = replace(outline.encoder, learns=2 * learns, reads=outline.encoder.reads + reads)
        return replace(outline, encoder=work)

    def search_space(self) -> dict[str, Any]:
        """The training and the dropout of the heads."""
        return super().search_space() | {"heads.dropout": {"low": 0.0, "high": 0.6}}

    def estimate_memory(self, corpus: Corpus) -> int:
        labels = len(corpus.index)
        if self.heads.groups_labels(labels):
            return self._memory(corpus, layers=1)
        copies = 3 if self.heads.is_full else 5  # no gradients and moments
        return self._memory(corpus, layers=self.heads.layers, copies=copies)


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
