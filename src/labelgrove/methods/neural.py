"""The steps that neural methods share, as functions that each method's ``fit`` calls in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelgrove.arrays import CSR, csr_arrays, csr_from_arrays
from labelgrove.callbacks import Reporter
from labelgrove.corpus import Corpus, LabelIndex
from labelgrove.errors import ConfigError, DataError
from labelgrove.features import Features
from labelgrove.label_features import describe_labels, label_strings
from labelgrove.methods.base import check_fitted, check_k, checked_inputs
from labelgrove.methods.linear import Linear
from labelgrove.methods.reranking import Reranker, train_reranker
from labelgrove.metrics import evaluate, scorer
from labelgrove.nn.batches import Batches, prefetched
from labelgrove.nn.devices import choose_device, choose_precision, derived_seed
from labelgrove.nn.encoder import Encoder, load_encoder
from labelgrove.nn.encoder_files import find_encoder
from labelgrove.nn.loop import LoopParams, LoopResult, train
from labelgrove.nn.network import LabelledBatches, MakeHeads, Network, Runner, network_part
from labelgrove.nn.tokens import Tokens, tokenize
from labelgrove.part import Part
from labelgrove.predictions import Predictions
from labelgrove.ranker import Ranker
from labelgrove.stages import Stages
from labelgrove.tfidf import Tfidf, TfidfParams
from labelgrove.tree import LabelTree, TreeParams, build_tree

# What the checkpoint is chosen by (their mean), and what is reported of the held-out part.
CHOSEN_BY = ("P@1", "P@3", "P@5")
REPORTED = (*CHOSEN_BY, "nDCG@5", "R@10")
FEWEST_HELD_OUT = 5  # documents; a smaller part would choose at random


def hold_out(corpus: Corpus, share: float, seed: int) -> tuple[Corpus, Corpus | None]:
    """The documents to learn from, and those that choose the checkpoint; None if too few.

    >>> train, held_out = hold_out(Corpus.from_lists(["x"] * 200, [["a"]] * 200), 0.05, 0)
    >>> len(train), len(held_out)
    (190, 10)
    """
    if not 0 <= share < 1:
        raise ConfigError(f"held_out: must be at least 0 and below 1, got {share}")
    count = round(share * len(corpus))
    if count < FEWEST_HELD_OUT:
        return corpus, None
    chosen = np.zeros(len(corpus), bool)
    chosen[np.random.default_rng([seed, 0]).choice(len(corpus), count, replace=False)] = True
    if corpus.labels[~chosen].nnz == 0:
        return corpus, None
    return corpus.take(~chosen), corpus.take(chosen)


@dataclass(frozen=True)
class TextFeatures:
    """tf-idf rows of the training texts, and the vectoriser that made them."""

    rows: CSR
    vectorizer: Tfidf


def tfidf_stage(
    stages: Stages, texts: Any, params: TfidfParams, *, threads: int | None
) -> TextFeatures:
    """tf-idf of the training texts, for trees, baselines and rankers."""

    def compute(_: Any) -> Part:
        vectorizer = Tfidf(params, n_jobs=threads)
        rows = vectorizer.fit_transform(texts)
        state = vectorizer.state()
        return Part(state.config, state.arrays | csr_arrays(rows, "features"))

    made = stages("tfidf", {"texts": texts, "tfidf": params}, compute)
    return TextFeatures(csr_from_arrays(made.arrays, "features"), Tfidf.from_state(made))


def tree_stage(
    stages: Stages,
    features: TextFeatures,
    corpus: Corpus,
    params: TreeParams,
    *,
    seed: int,
    threads: int | None,
) -> LabelTree:
    """A label tree grown from the tf-idf of each label's documents (or as ``params`` says)."""
    strings = label_strings(params, corpus.index)

    def compute(_: Any) -> Part:
        described = describe_labels(
            params,
            features.rows,
            corpus.labels,
            transform=features.vectorizer.transform,
            strings=strings,
            seed=seed,
            threads=threads,
        )
        return build_tree(described, params, seed=seed, threads=threads).state()

    inputs = {
        "features": stages.key("tfidf"),
        "labels": corpus.labels,
        "strings": strings,
        "tree": params,
        "seed": seed,
    }
    return LabelTree.from_state(stages("tree", inputs, compute))


def tokens_stage(
    stages: Stages, name: str, texts: Any, encoder: Encoder, *, threads: int | None
) -> Tokens:
    """Texts as the encoder reads them."""

    def compute(progress: Any) -> Part:
        return tokenize(
            texts, encoder, encoder.max_tokens, threads=threads, progress=progress.update
        ).state()

    inputs = {
        "texts": texts,
        "tokenizer": encoder.tokenizer.to_str(),
        "max_tokens": encoder.max_tokens,
    }
    return Tokens.from_state(stages(name, inputs, compute))


def baseline_stage(
    stages: Stages,
    features: TextFeatures,
    corpus: Corpus,
    held_out: Corpus,
    *,
    seed: int,
    threads: int | None,
) -> dict[str, float]:
    """What the linear method reaches on the held-out part, trained on the same documents."""

    def compute(_: Any) -> Part:
        model = Linear(random_state=seed, n_jobs=threads)
        model.fit(features.rows, corpus.labels, index=corpus.index)
        assert held_out.texts is not None
        found = model.predict(features.vectorizer.transform(held_out.texts), k=10)
        return Part(measured(found, held_out))

    inputs = {
        "features": stages.key("tfidf"),
        "labels": corpus.labels,
        "held_out": [held_out.texts, held_out.labels],
        "seed": seed,
    }
    return stages("linear-baseline", inputs, compute).config


def measured(predictions: Predictions, truth: Corpus) -> dict[str, float]:
    """The metrics that ``fit`` reports, as fractions.

    >>> corpus = Corpus.from_lists(["x"], [["a"]])
    >>> found = Predictions([[0]], [[0.5]], [1], corpus.index, "product")
    >>> measured(found, corpus)["P@1"]
    1.0
    """
    found = evaluate(predictions, truth.labels, unknown=truth.unknown, metrics=REPORTED)
    return {name: float(found[name]) for name in REPORTED}


@dataclass(frozen=True)
class Prepared:
    """All that a network needs to be trained: made once per fit, stage by stage."""

    corpus: Corpus
    learnt_from: Corpus
    held_out: Corpus | None
    features: TextFeatures
    linear: dict[str, float]  # what the linear method reaches on the held-out part
    encoder: Encoder
    tokens: Tokens
    held_out_tokens: Tokens | None


def prepare(model: Any, corpus: Corpus, stages: Stages) -> Prepared:
    """Splits the documents, makes tf-idf and tokens, and trains the linear baseline."""
    if corpus.texts is None:
        raise DataError(f"{model.method} reads text, and these documents have features only")
    seed, threads = model.random_state, model.n_jobs
    learnt_from, held_out = hold_out(corpus, model.held_out, seed)
    encoder = load_encoder(model.encoder)
    features = tfidf_stage(stages, learnt_from.texts, model.tfidf, threads=threads)
    linear = {}
    if model.baseline and held_out is not None:
        linear = baseline_stage(stages, features, learnt_from, held_out, seed=seed, threads=threads)
    tokens = tokens_stage(stages, "tokens", learnt_from.texts, encoder, threads=threads)
    held_out_tokens = None
    if held_out is not None:
        held_out_tokens = tokens_stage(
            stages, "held-out-tokens", held_out.texts, encoder, threads=threads
        )
    return Prepared(
        corpus, learnt_from, held_out, features, linear, encoder, tokens, held_out_tokens
    )


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
        result = train_network(
            network,
            data,
            model.training,
            reporter=stages.reporter,
            device=model.device,
            seed=seed,
            folder=None if stages.run is None else stages.run.checkpoint("network").folder,
        )
        return network_part(network, result.story())

    described = {
        "tokens": stages.key("tokens"),
        "held_out": stages.key("held-out-tokens"),
        "labels": data.corpus.labels,
        "encoder": model.encoder,
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
    encoder, where = network.encoder, choose_device(device)
    batches = Batches(
        data.tokens,
        params.batch_size,
        pad_id=encoder.pad_id,
        pad_left=encoder.pad_left,
        seed=seed,
        max_tokens=params.batch_tokens,
    )
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
        "rerank": model.rerank,
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
        ranked(model, runner, data.held_out.texts, data.held_out_tokens, k=10), data.held_out
    )
    reporter.message(comparison(model.method, ours, data.linear))
    recall = runner.shortlist_recall(data.held_out_tokens, data.held_out.labels)
    return {model.method: ours, "linear": data.linear, "shortlist_recall": recall}


def prediction_runner(model: Any) -> Runner:
    """Sends documents through a fitted model's network, on the device that it asks for."""
    device = choose_device(model.device)
    precision = choose_precision(model.training.precision, device)
    return Runner(model.network_.to(device), device=device, precision=precision)


def predict_texts(model: Any, X: Any, k: int, *, threads: int | None = None) -> Predictions:
    """The k best labels of texts by a fitted neural method."""
    check_fitted(model)
    k = check_k(k)
    texts = checked_inputs(X)
    if isinstance(texts, Features):
        raise DataError(f"{model.method} reads text and cannot predict from features")
    encoder = model.network_.encoder
    tokens = tokenize(texts, encoder, encoder.max_tokens, threads=threads or model.n_jobs)
    return ranked(model, prediction_runner(model), texts, tokens, k=k, threads=threads)


def ranked(
    model: Any,
    runner: Runner,
    texts: Any,
    tokens: Tokens,
    *,
    k: int,
    threads: int | None = None,
) -> Predictions:
    """The k best labels by the network, and by the ranker over its shortlist if there is one."""
    if model.reranker_ is None:
        return best_labels(runner, tokens, model.index_, k=k)
    columns, scores = model.reranker_.best_labels(
        runner, texts, tokens, min(k, len(model.index_)), threads=threads or model.n_jobs
    )
    counts = (columns >= 0).sum(axis=1).astype(np.int32)
    return Predictions(columns, scores, counts, model.index_, "product")


def best_labels(runner: Runner, tokens: Tokens, index: LabelIndex, *, k: int) -> Predictions:
    """The k best labels of tokenised documents."""
    columns, scores = runner.best_labels(tokens, min(k, len(index)))
    counts = (columns >= 0).sum(axis=1).astype(np.int32)
    return Predictions(columns, scores, counts, index, "product")


def precision_at_1(model: Any, X: Any, y: Any) -> float:
    """What scikit-learn's searches maximise by default."""
    return float(scorer("P@1")(model, X, y))


def estimate_memory(model: Any, corpus: Corpus) -> int:
    """Bytes of main memory for fitting: tf-idf and the baseline, or the network with its optimiser.

    The encoder is counted as its files are; a GPU's memory is another matter.
    """
    linear = Linear(tfidf=model.tfidf).estimate_memory(corpus)
    weights = sum(
        f.stat().st_size for f in find_encoder(model.encoder.encoder).glob("*.safetensors")
    )
    tokens = 4 * model.encoder.max_tokens * len(corpus)
    # Weights, their gradients, two moments, and one copy for the best checkpoint.
    return int(linear + tokens + 5 * (2 * weights + 4 * 512 * len(corpus.index)))


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
