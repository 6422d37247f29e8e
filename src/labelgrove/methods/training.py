"""Training a network, an encoder with heads on it, and running it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from labelgrove.core.aliases import Table
from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex
from labelgrove.disk.stages import Session
from labelgrove.errors import ConfigError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.preparation import CHOSEN_BY, TrainingExamples, held_out_measures
from labelgrove.nn.batches.packing import PackedBatches
from labelgrove.nn.batches.padded import Batches
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import LabelledBatches, MakeHeads, Network, Runner, network_part
from labelgrove.nn.training.devices import (
    Workers,
    choose_device,
    choose_precision,
    derived_seed,
)
from labelgrove.nn.training.loop import LoopParams, Task, train


def train_heads(
    examples: TrainingExamples,
    encoder: Encoder,
    heads: MakeHeads,
    training: LoopParams,
    seed: int,
    divided: bool = False,
    *,
    session: Session,
) -> Part:
    """Trains an encoder with heads on it; gives a ``network_part``.

    The checkpoint with the best mean of P@1, P@3 and P@5 is kept. If the label table is
    ``divided``, every process that takes part in the training holds some of its rows.
    """
    where = choose_device()
    with torch.random.fork_rng([]):
        torch.manual_seed(derived_seed(seed, 0))
        # A table that is divided may be too large for one GPU.
        network = Network(encoder, *heads(encoder, None if divided else where))
    network.heads.start_from(examples.labels)
    if divided:
        workers = Workers.start(where)
        network.heads.divide(workers.rank, workers.count, where)
        session.reporter.message(
            f"heads.sharded: {workers.count} processes divide the rows of {len(examples.index):,} "
            "labels"
        )
    if network.heads.params.standardise:
        make_runner(network, training.precision).standardise(examples.tokens)
    batches = make_batches(examples.tokens, encoder, training, seed)
    runner = make_runner(network, training.precision)

    def score() -> float:
        assert examples.held_out is not None and examples.held_out_tokens is not None
        predictions = best_labels(runner, examples.held_out_tokens, examples.index, k=10)
        values = held_out_measures(predictions, examples.held_out)
        return float(np.mean([values[name] for name in CHOSEN_BY]))

    result = train(
        network,
        Task(
            LabelledBatches(batches, examples.labels),
            lambda model, batch: model(batch),
            None if examples.held_out is None else score,
        ),
        training,
        folder=session.checkpoints,
        reporter=session.reporter,
        seed=seed,
        stage="training",
    )
    return network_part(network, result.summary())


def make_batches(
    tokens: Tokens, encoder: Encoder, params: LoopParams, seed: int
) -> Batches | PackedBatches:
    """Training batches of the form that the settings, the encoder and the device ask for."""
    if params.packed and (obstacle := encoder.packing_obstacle):
        raise ConfigError(f"training.packed: {obstacle}; leave it unset")
    if params.batch_tokens is not None and tokens.longest > params.batch_tokens:
        raise ConfigError(
            f"training.batch_tokens: {params.batch_tokens} are too few for a text of "
            f"{tokens.longest}; raise it, or lower encoder.max_tokens"
        )
    common: Table = {
        "pad_id": encoder.pad_id,
        "seed": seed,
        "max_tokens": params.batch_tokens,
    }
    device = choose_device()
    quick = encoder.packs_quickly(device, choose_precision(params.precision, device))
    if quick if params.packed is None else params.packed:
        return PackedBatches(tokens, params.batch_size, **common)
    return Batches(tokens, params.batch_size, pad_left=encoder.pad_left, **common)


def padding_note(encoder: Encoder, params: LoopParams) -> str | None:
    """Why texts are padded on a GPU, where most encoders read packed ones; None if they are not."""
    packs, device = encoder.packs or params.packed is False, choose_device()
    if packs or device.type != "cuda" or choose_precision(params.precision, device) == "fp32":
        return None
    return f"texts are padded, in batches of similar length: {encoder.packing_obstacle}"


def make_runner(network: Network, precision: str) -> Runner:
    """Sends documents through ``network`` on the caller's device, in a precision."""
    where = choose_device()
    # The encoder may have been elsewhere before it became a part of this network.
    for here in (network.mean.device, next(network.encoder.parameters()).device):
        if here.type != where.type or where.index not in (None, here.index):
            network.to(where)  # visits all modules, which is slow for a single text
            break
    return Runner(network, precision=choose_precision(precision, where))


def best_labels(
    runner: Runner, tokens: Tokens, index: LabelIndex, *, k: int, mask: LabelMask | None = None
) -> Predictions:
    """The k best labels of tokenised documents."""
    columns, scores, _ = runner.read(tokens, min(k, len(index)), mask=mask)
    counts = (columns >= 0).sum(axis=1).astype(np.int32)
    return Predictions(columns, scores, counts, index, "product")


def joined_histories(levels: Sequence[Table]) -> Table:
    """How the training of all levels went, in the form that other methods tell it of one.

    >>> level = {"steps": 3, "best_step": 2, "seconds": 2.0, "tokens_per_second": 5.0}
    >>> history = joined_histories([level | {"history": [{"step": 3}]}] * 2)
    >>> history["steps"], history["tokens_per_second"], history["history"][1]
    (6, 5.0, {'level': 2, 'step': 3})
    """
    seconds = sum(level["seconds"] for level in levels)
    tokens = sum(level["seconds"] * level["tokens_per_second"] for level in levels)
    return {
        "steps": sum(level["steps"] for level in levels),
        "best_step": levels[-1]["best_step"],  # of the last level
        "seconds": seconds,
        "tokens_per_second": tokens / max(seconds, 1e-9),
        "history": [
            {"level": number, **record}
            for number, level in enumerate(levels, 1)
            for record in level["history"]
        ],
        "levels": [{k: v for k, v in level.items() if k != "history"} for level in levels],
    }
