"""Functions that methods with an encoder call: before, during and after the training of a network.

They read the settings that all these methods have. ``preparation.py`` makes what a
network learns from, ``defaults.py`` derives the settings that are "auto".
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from labelgrove.core.aliases import DerivedSettings, DocumentInput, LabelInput, Table
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import fixed
from labelgrove.core.part import Part
from labelgrove.core.resources import using
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Session, Stages
from labelgrove.errors import ConfigError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.cost_estimate import EncoderWork
from labelgrove.methods.defaults import HELD_OUT, MOST_TOKENS, RULES, TrainingNeeds, derive
from labelgrove.methods.inputs import labelled_corpus
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.preparation import (
    CHOSEN_BY,
    Neural,
    Prepared,
    TrainingExamples,
    WithEncoder,
    check_fields,
    default_inputs,
    held_out_measures,
)
from labelgrove.methods.terms import choose_features, given_matrix
from labelgrove.nn.batches import Batches, PackedBatches
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import parameter_count, states_width
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import LabelledBatches, MakeHeads, Network, Runner, network_part
from labelgrove.nn.training import devices
from labelgrove.nn.training.devices import choose_device, choose_precision
from labelgrove.nn.training.loop import Task, train
from labelgrove.nn.training.params import TrainingParams

M = TypeVar("M", bound=WithEncoder)


def fit(
    self: M,
    X: DocumentInput,
    y: LabelInput = None,
    *,
    index: LabelIndex | None = None,
    callbacks: Sequence[Callback] = (),
    run: RunFolder | None = None,
) -> M:
    """Trains from texts and labels; with a ``run`` folder, continues where it stopped.

    Arguments of the model stay as they came: ``_train`` is called on a copy with nothing "auto",
    and what was fitted is set in the model at the end.
    """
    self.check_settings()
    corpus = labelled_corpus(self.method, X, y, index, ranker=self.ranker)
    check_fields(self.encoder, corpus)
    plain = self.resolve_defaults(corpus)
    with (
        using(threads=self.n_jobs, device=self.device),
        closing(Stages(Reporter(callbacks), run)) as stages,
    ):
        choice = choose_features(self.features, corpus)
        if choice.message:
            stages.reporter.message(choice.message)
        plain._train(choice.corpus, stages)
        if given_matrix(choice.corpus) is not None and not plain.facts_.given:
            stages.reporter.message(
                "features: predictions do not read the matrix that came with the texts; at "
                "most the label tree and the linear comparison were made from it"
            )
    if plain is self:
        self.derived_ = {}
    else:
        vars(self).update({n: v for n, v in vars(plain).items() if n.endswith("_")})
    return self


def resolve_defaults(
    model: M, corpus: Corpus, needs: TrainingNeeds | None = None, clusters: tuple[int, ...] = ()
) -> M:
    """A copy with values for settings that are "auto", or the model itself if none are.

    ``needs`` are those of the method's training, ``clusters`` the widths of its heads above the
    labels.
    """
    derived = dict(choose_features(model.features, corpus).derived)
    if corpus.texts is not None:
        derived = {**_derived(model, corpus, needs or TrainingNeeds(), clusters), **derived}
    if not derived:
        return model
    plain = copy.copy(model)
    plain.derived_ = derived
    for name, (value, _) in derived.items():
        table, _, key = name.rpartition(".")
        changed = value if not table else replace(getattr(plain, table), **{key: value})
        setattr(plain, table or key, changed)
    return plain


def _derived(
    model: WithEncoder, corpus: Corpus, needs: TrainingNeeds, clusters: tuple[int, ...]
) -> DerivedSettings:
    """Values for settings of the encoder and its training, with reasons."""
    settings: Table = {}
    for name, value in model.to_config().items():
        if isinstance(value, dict):
            settings |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            settings[name] = value
    if "auto" not in [settings[name] for name in RULES if name in settings]:
        return {}
    with using(threads=model.n_jobs, device=model.device):
        return derive(settings, default_inputs(corpus, model.encoder, clusters=clusters), needs)


def compared(
    method: str, data: Prepared, stages: Stages, predictions: Predictions, recall: list[float]
) -> Table:
    """The method beside the linear one on the held-out part; says so when it is worse."""
    assert data.held_out is not None
    ours = held_out_measures(predictions, data.held_out, data.learnt_from)
    linear = data.linear().measures
    stages.reporter.message(comparison(method, ours, linear))
    report = {method: ours, "linear": linear, "shortlist_recall": recall}
    return report | {"held_out": len(data.held_out)}


def encoder_work(
    model: WithEncoder,
    documents: int,
    *,
    reads: float,
    trainings: float = 1,
    steps: int | None = None,
) -> EncoderWork:
    """``reads`` are passes over all documents besides training and evaluation.

    ``steps`` are the updates of a training whose own settings limit them.
    """
    training = model.training  # "auto" stands for a plain number
    passes, held_out = fixed(training.epochs, 5.0), fixed(model.held_out, HELD_OUT)
    limits = [count for count in (steps, training.max_steps) if count]
    if limits:
        size = fixed(training.batch_size, 32) * training.accumulate
        passes = min(limits) * size / (documents * (1 - held_out))
    epochs = passes * (1 - held_out)
    evaluations = max(1.0, passes * fixed(training.evaluations_per_epoch, 1.0))
    if trainings:
        reads += held_out * (evaluations + 1)
    return EncoderWork(model.encoder, training, model.device, trainings * epochs, reads)


def estimate_memory(model: Neural, corpus: Corpus, *, layers: int = 1, copies: int = 5) -> int:
    """Bytes of main memory for fitting, roughly: tf-idf and linear, the network, text vectors.

    A label's vector is as wide as ``layers`` states of the encoder, and training has so many
    ``copies`` of it. A GPU's memory is not counted.
    """
    linear = Linear(tfidf=model.tfidf, features=model.features).estimate_memory(corpus)
    folder = model.encoder.folder()
    width = 4 * layers * max(512, states_width(folder))
    # Weights, their gradients, two moments, a copy for the best checkpoint; twice the encoder's for
    # all that passes through it. Vectors of documents with temporaries, and their shortlists.
    network = 40 * parameter_count(folder) + copies * width * len(corpus.index)
    document = 4 * fixed(model.encoder.max_tokens, MOST_TOKENS) + 3 * width + 4000
    return int(linear + network + document * len(corpus))


def comparison(name: str, ours: Mapping[str, float], linear: Mapping[str, float]) -> str:
    """One sentence on how a method did beside the linear one."""

    def figures(values: Mapping[str, float]) -> str:
        return "/".join(f"{100 * values[metric]:.2f}" for metric in CHOSEN_BY)

    message = f"held-out P@1/3/5: {name} {figures(ours)}"
    if not linear:
        return message
    behind = sum(ours[m] for m in CHOSEN_BY) < sum(linear[m] for m in CHOSEN_BY)
    verdict = "; the linear method is better here" if behind else ""
    return f"{message}, linear {figures(linear)}{verdict}"


def train_heads(
    examples: TrainingExamples,
    encoder: Encoder,
    heads: MakeHeads,
    training: TrainingParams,
    seed: int,
    *,
    session: Session,
) -> Part:
    """Trains an encoder with heads on it; gives a ``network_part``.

    The checkpoint with the best mean of P@1, P@3 and P@5 is kept.
    """
    where = choose_device()
    with torch.random.fork_rng([]):
        torch.manual_seed(devices.derived_seed(seed, 0))
        network = Network(encoder, *heads(encoder, where))
    network.heads.start_from(examples.labels)
    if network.heads.params.standardise:
        make_runner(network, training.precision).standardise(examples.tokens)
    batches = make_batches(examples.tokens, encoder, training, seed)
    runner = make_runner(network, training.precision)

    def score() -> float:
        assert examples.held_out is not None and examples.held_out_tokens is not None
        predictions = best_labels(runner, examples.held_out_tokens, examples.index, k=10)
        values = held_out_measures(predictions, examples.held_out)
        return float(np.mean([values[name] for name in CHOSEN_BY]))

    task = Task(
        LabelledBatches(batches, examples.labels),
        lambda model, batch: model(batch),
        None if examples.held_out is None else score,
    )
    return network_part(network, learn(network, task, training, seed, session))


def learn(
    network: Network,
    task: Task,
    params: TrainingParams,
    seed: int,
    session: Session,
    stage: str = "training",
) -> Table:
    """Trains a network within a stage of the run folder; gives how the training went."""
    loop: Table = {"folder": session.checkpoints, "reporter": session.reporter}
    return train(network, task, params, **loop, seed=seed, stage=stage).summary()


def make_batches(
    tokens: Tokens, encoder: Encoder, params: TrainingParams, seed: int
) -> Batches | PackedBatches:
    """Training batches of the form that the settings, the encoder and the device ask for."""
    if params.packed and not encoder.packs:
        raise ConfigError(
            f"training.packed: {encoder.model.config.model_type} encoders have no pass over packed "
            "texts, or not with these settings of the encoder; leave it unset"
        )
    device = choose_device()
    quick = encoder.packs_quickly(device, choose_precision(params.precision, device))
    if quick if params.packed is None else params.packed:
        return PackedBatches(tokens, params.batch_size, pad_id=encoder.pad_id, seed=seed)
    return Batches(
        tokens, params.batch_size, pad_id=encoder.pad_id, pad_left=encoder.pad_left, seed=seed
    )


def make_runner(network: Network, precision: str) -> Runner:
    """Sends documents through ``network`` on the caller's device, in a precision."""
    where = choose_device()
    # The encoder may have been elsewhere before it became a part of this network.
    for here in (network.mean.device, next(network.encoder.parameters()).device):
        if here.type != where.type or where.index not in (None, here.index):
            network.to(where)  # visits all modules, which is slow for a single text
            break
    return Runner(network, precision=choose_precision(precision, where, reads=True))


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
