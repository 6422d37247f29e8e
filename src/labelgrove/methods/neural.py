"""Training, reporting and predicting with a network: what each neural method's ``fit`` calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelgrove.core.callbacks import Reporter
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.disk.part import Part
from labelgrove.disk.stages import Stages
from labelgrove.errors import ConfigError
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.base import texts_of
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.preparation import CHOSEN_BY, Prepared, measured
from labelgrove.methods.reranking import Reranker, RerankParams, train_reranker
from labelgrove.nn.batches.packing import PackedBatches
from labelgrove.nn.batches.padded import Batches, prefetched
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import (
    EncoderContent,
    find_encoder,
    parameter_count,
    states_width,
)
from labelgrove.nn.encoders.tokens import Tokens, tokenize
from labelgrove.nn.network import (
    LabelledBatches,
    MakeHeads,
    Network,
    Runner,
    network_from_part,
    network_part,
)
from labelgrove.nn.training.devices import choose_device, choose_precision, derived_seed
from labelgrove.nn.training.loop import LoopParams, LoopResult, train
from labelgrove.ranking.ranker import Ranker
from labelgrove.scores.predictions import Predictions


def network_stage(
    model: Any,
    data: Prepared,
    make_heads: MakeHeads,
    inputs: Mapping[str, Any],
    stages: Stages,
) -> Part:
    """Trains the heads that ``make_heads`` puts on the encoder; gives a ``network_part``."""
    seed = model.random_state

    def compute(_: Any) -> Part:
        with torch.random.fork_rng([]):
            torch.manual_seed(derived_seed(seed, 0))
            network = Network(data.encoder, *make_heads(data.encoder))
        network.heads.start_from(data.learnt_from.labels)
        if network.heads.params.standardise:
            make_runner(network, model).standardise(data.tokens)
        result = train_network(
            network,
            data,
            model.training,
            reporter=stages.reporter,
            device=model.device,
            seed=seed,
            folder=stages.checkpoint_folder("network"),
        )
        return network_part(network, result.story())

    described = {
        "tokens": stages.key("tokens"),
        "held_out": stages.key("held-out-tokens"),
        "labels": data.corpus.labels,
        "encoder": EncoderContent(model.encoder),
        "training": model.training.identity(),
        "seed": seed,
    }
    return stages("network", described | dict(inputs), compute)


def train_network(
    network: Network,
    data: Prepared,
    params: LoopParams,
    *,
    reporter: Reporter,
    device: str,
    seed: int,
    folder: Path | None,
) -> LoopResult:
    """Trains in place. The checkpoint with the best mean of P@1, P@3 and P@5 is kept."""
    where = choose_device(device)
    batches = make_batches(data.tokens, network.encoder, params, where, seed)
    runner = Runner(network, device=where, precision=choose_precision(params.precision, where))

    def score() -> float:
        assert data.held_out is not None and data.held_out_tokens is not None
        found = best_labels(runner, data.held_out_tokens, data.corpus.index, k=10)
        values = measured(found, data.held_out)
        return float(np.mean([values[name] for name in CHOSEN_BY]))

    return train(
        network,
        LabelledBatches(batches, data.learnt_from.labels),
        lambda model, batch: model(batch),
        params,
        evaluate=None if data.held_out is None else score,
        folder=folder,
        reporter=Reporter(reporter.callbacks),  # its seconds are counted as the stage's already
        device=where,
        seed=seed,
        prefetch=prefetched,
        stage="training",
    )


def make_batches(
    tokens: Tokens, encoder: Encoder, params: LoopParams, device: torch.device, seed: int
) -> Batches | PackedBatches:
    """Training batches of the form that the settings, the encoder and the device ask for."""
    if params.packed and not encoder.packs:
        raise ConfigError(
            "training.packed: needs a BERT or RoBERTa encoder pooled by first token or mean, "
            "without gradient checkpointing; leave it unset"
        )
    if params.batch_tokens is not None and tokens.longest > params.batch_tokens:
        raise ConfigError(
            f"training.batch_tokens: {params.batch_tokens} are too few for a text of "
            f"{tokens.longest}; raise it, or lower encoder.max_tokens"
        )
    quick = encoder.packs_quickly(device, choose_precision(params.precision, device))
    if quick if params.packed is None else params.packed:
        return PackedBatches(
            tokens,
            params.batch_size,
            pad_id=encoder.pad_id,
            seed=seed,
            max_tokens=params.batch_tokens,
        )
    return Batches(
        tokens,
        params.batch_size,
        pad_id=encoder.pad_id,
        pad_left=encoder.pad_left,
        seed=seed,
        max_tokens=params.batch_tokens,
    )


def rerank_stage(
    model: Any, data: Prepared, tree: LabelTree | None, stages: Stages
) -> Reranker | None:
    """The ranker over the network's shortlists, where the settings want one."""
    if not model.rerank.enabled:
        return None
    assert tree is not None

    def compute(_: Any) -> Part:
        return train_reranker(
            prediction_runner(model),
            data.tokens,
            data.features.rows,
            data.learnt_from.labels,
            tree,
            model.rerank,
            model.ranker,
            seed=model.random_state,
            threads=model.n_jobs,
        ).state()

    inputs = {
        "network": stages.key("network"),
        "features": stages.key("tfidf"),
        "tree": stages.key("tree"),
        "rerank": [getattr(model.rerank, name) for name in ("shortlist", "start", "normalise")],
        "ranker": model.ranker,
    }
    ranker = Ranker.from_state(stages("rerank", inputs, compute))
    return Reranker(data.features.vectorizer, ranker, model.rerank)


def report(model: Any, data: Prepared, reporter: Reporter) -> dict[str, Any]:
    """The method beside the linear one on the held-out part; says so when it is worse."""
    if data.held_out is None or data.held_out_tokens is None:
        return {}
    runner = prediction_runner(model)
    ours = measured(
        ranked(model, runner, data.held_out.texts, data.held_out_tokens, k=10),
        data.held_out,
        data.learnt_from,
    )
    reporter.message(comparison(model.method, ours, data.linear))
    recall = runner.shortlist_recall(data.held_out_tokens, data.held_out.labels)
    return {model.method: ours, "linear": data.linear, "shortlist_recall": recall}


def network_parts(model: Any) -> dict[str, Part]:
    """What the model folder keeps of a network, its tree and the ranker over its shortlists."""
    parts = {"network": network_part(model.network_, model.story_, model.report_)}
    if model.tree_ is not None:
        parts["tree"] = model.tree_.state()
    if model.reranker_ is not None:
        parts |= model.reranker_.parts()
    return parts


def restore_network(model: Any, parts: Mapping[str, Part], heads: MakeHeads) -> None:
    """Gives a loaded model what :func:`network_parts` kept, but for the tree."""
    model.device = "auto"  # whatever it was trained on
    model.network_ = network_from_part(parts["network"], heads)
    model.reranker_ = Reranker.from_parts(parts, model.rerank)
    model.story_ = parts["network"].config["story"]
    model.report_ = parts["network"].config["report"]


def prediction_runner(model: Any) -> Runner:
    """Sends documents through a fitted model's network, on the device that it asks for."""
    return make_runner(model.network_, model)


def make_runner(network: Network, model: Any) -> Runner:
    """Sends documents through ``network`` on the device and in the precision of ``model``."""
    device = choose_device(model.device)
    precision = choose_precision(model.training.precision, device)
    here = network.mean.device
    if here.type != device.type or device.index not in (None, here.index):
        network.to(device)  # walks through all modules, which a single text would feel
    return Runner(network, device=device, precision=precision)


def predict_texts(
    model: Any, X: Any, k: int, *, mask: LabelMask | None = None, threads: int | None = None
) -> Predictions:
    """The k best labels of texts by a fitted neural method, of those in ``mask``."""
    texts = texts_of(model, X)
    encoder = model.network_.encoder
    tokens = tokenize(texts, encoder, encoder.max_tokens, threads=threads or model.n_jobs)
    runner = prediction_runner(model)
    return ranked(model, runner, texts, tokens, k=k, mask=mask, threads=threads)


def ranked(
    model: Any,
    runner: Runner,
    texts: Any,
    tokens: Tokens,
    *,
    k: int,
    mask: LabelMask | None = None,
    threads: int | None = None,
) -> Predictions:
    """The k best labels by the network, and by the ranker over its shortlist if there is one."""
    if model.reranker_ is None:
        return best_labels(runner, tokens, model.index_, k=k, mask=mask)
    columns, scores = model.reranker_.best_labels(
        runner,
        texts,
        tokens,
        min(k, len(model.index_ if mask is None else mask)),
        mask=mask,
        threads=threads or model.n_jobs,
    )
    counts = (columns >= 0).sum(axis=1).astype(np.int32)
    return Predictions(columns, scores, counts, model.index_, "product")


def best_labels(
    runner: Runner, tokens: Tokens, index: LabelIndex, *, k: int, mask: LabelMask | None = None
) -> Predictions:
    """The k best labels of tokenised documents."""
    columns, scores = runner.best_labels(tokens, min(k, len(index)), mask=mask)
    counts = (columns >= 0).sum(axis=1).astype(np.int32)
    return Predictions(columns, scores, counts, index, "product")


def estimate_memory(model: Any, corpus: Corpus, *, layers: int = 1) -> int:
    """Bytes of main memory for fitting: tf-idf and the baseline, or the network with its optimiser.

    A label's vector is as wide as ``layers`` states of the encoder. A GPU's memory is another
    matter.
    """
    linear = Linear(tfidf=model.tfidf).estimate_memory(corpus)
    folder = find_encoder(model.encoder.encoder)
    weights = 4 * parameter_count(folder)
    tokens = 4 * model.encoder.max_tokens * len(corpus)
    label = 4 * layers * max(512, states_width(folder))
    # Weights, their gradients, two moments, a copy for the best checkpoint; twice the encoder's for
    # all that passes through it.
    training = 5 * (2 * weights + label * len(corpus.index))
    rerank: RerankParams | None = getattr(model, "rerank", None)
    if rerank is None or not rerank.enabled:
        return int(linear + tokens + training)
    # The documents' vectors, twice and with temporaries, their shortlists, the ranker's weights.
    document = 3 * label + 40 * rerank.shortlist
    reranking = 2 * weights + document * len(corpus) + 2 * label * len(corpus.index)
    return int(linear + tokens + max(training, reranking))


def comparison(name: str, ours: Mapping[str, float], linear: Mapping[str, float]) -> str:
    """One sentence on how a method did beside the linear one.

    >>> comparison("lightxml", {"P@1": 0.5, "P@3": 0.2, "P@5": 0.1}, {})
    'held-out P@1/3/5: lightxml 50.00/20.00/10.00'
    """

    def figures(values: Mapping[str, float]) -> str:
        return "/".join(f"{100 * values[metric]:.2f}" for metric in CHOSEN_BY)

    said = f"held-out P@1/3/5: {name} {figures(ours)}"
    if not linear:
        return said
    behind = sum(ours[m] for m in CHOSEN_BY) < sum(linear[m] for m in CHOSEN_BY)
    verdict = "; the linear method is better here" if behind else ""
    return f"{said}, linear {figures(linear)}{verdict}"
