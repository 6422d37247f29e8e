"""How XR-Transformer's encoder goes down the preliminary tree, level by level."""

from __future__ import annotations

from typing import Any, Protocol

from labelgrove.core.aliases import Table
from labelgrove.core.part import Part
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.neural import Neural
from labelgrove.methods.preparation import Prepared
from labelgrove.methods.xrtransformer.net import XrParams, fine_tuned_levels, level_training
from labelgrove.methods.xrtransformer.stages import (
    LevelInputs,
    LevelVectors,
    Shortlists,
    embed_documents,
    fine_tune,
    shortlist_nodes,
    start_head,
)
from labelgrove.methods.xrtransformer.vectors import Standard, standardise
from labelgrove.nn.heads.layers import per_level
from labelgrove.nn.heads.params import LABEL_WEIGHTS
from labelgrove.ranking.solver import RankerParams


class LevelSettings(Neural, Protocol):
    """The settings of the method that levels read."""

    heads: XrParams
    matcher: RankerParams


def make_descent(
    model: LevelSettings, data: Prepared, stages: Stages, tree: CachedResult[LabelTree]
) -> CachedResult[LevelInputs]:
    """What all levels of the fine-tuning share."""
    precision = model.training.precision
    standard: CachedResult[Standard] | None = None
    if model.heads.standardise:
        standard = stages(
            "standard", standardise, encoder=data.encoder, tokens=data.tokens, precision=precision
        )
    inputs: dict[str, CachedResult[Any]] = {"examples": data.examples(stages), "terms": data.terms}
    inputs |= {"encoder": data.encoder, "tree": tree}
    return stages.derive(
        lambda: LevelInputs(
            **{name: made.value for name, made in inputs.items()},
            standard=None if standard is None else standard.value,
            precision=precision,
            seed=model.random_state,
        ),
        **inputs,
        standard=standard,
        precision=precision,
        seed=model.random_state,
    )


def go_down(
    model: LevelSettings, stages: Stages, inputs: CachedResult[LevelInputs]
) -> tuple[CachedResult[Part], CachedResult[LevelVectors], list[Shortlists], list[Table]]:
    """Fine-tunes level by level; the last network, its vectors, and what was shortlisted."""
    heads = model.heads
    levels = fine_tuned_levels(inputs.value.tree, heads.max_clusters)
    loops = level_training(heads, model.training, levels)
    per_level(heads.kept, levels - 1, "kept")  # refuses a list of another length now
    network: CachedResult[Part] | None = None
    vectors: CachedResult[LevelVectors] | None = None
    if heads.bootstrap_first and "linear" in heads.bootstrap:
        vectors = stages("vectors-0", embed_documents, inputs=inputs, network=None)
    above: CachedResult[Shortlists] | None = None
    shortlists, histories = [], []
    for level, loop in enumerate(loops, 1):
        negatives = () if above is None else ("negatives",)
        weights = LABEL_WEIGHTS if level == len(inputs.value.tree.parents) else ()
        start = None
        inherits = heads.bootstrap == "inherit"
        if heads.bootstrap != "none" and vectors is not None and (network or not inherits):
            solved = () if inherits else ("bootstrap_C", "bootstrap_scaled", *negatives)
            if heads.bootstrap == "cost-linear":
                solved = (*solved, "alpha")
            start = stages(
                f"bootstrap-{level}",
                start_head,
                inputs=inputs,
                level=level,
                before=network,
                vectors=vectors,
                above=above,
                heads=heads.only("bootstrap", *solved),
            )
        network = stages(
            f"network-{level}",
            fine_tune,
            inputs=inputs,
            level=level,
            before=network,
            start=start,
            above=above,
            heads=heads.only(
                *("loss", "relevance", "alpha", "reduction", "l2", "dropout", "logits"),
                *("max_candidates", "row_table_from", *negatives, *weights),
            ),
            training=loop,
        )
        name = f"vectors-{level}"
        vectors = stages(name, embed_documents, inputs=inputs, network=network)
        histories.append(network.value.config["story"])
        if level < levels:
            above = stages(
                f"matcher-{level}",
                shortlist_nodes,
                inputs=inputs,
                level=level,
                network=network,
                vectors=vectors,
                above=above,
                keep=heads.kept[level - 1] if isinstance(heads.kept, list) else heads.kept,
                heads=heads.only("matcher", *negatives),
                matcher=None if heads.matcher == "head" else model.matcher,
            )
            shortlists.append(above.value)
    assert network is not None and vectors is not None
    return network, vectors, shortlists, histories
