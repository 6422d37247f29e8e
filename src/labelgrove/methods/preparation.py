"""What neural methods need before a network is trained: held-out documents, tf-idf, trees, tokens.

Each step is a stage of the run folder, and a repeated fit takes what is there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from labelgrove.core.arrays import CSR, csr_from_arrays
from labelgrove.data.corpus import Corpus
from labelgrove.data.splits import repeated_texts
from labelgrove.disk.part import Part
from labelgrove.disk.stages import Stages
from labelgrove.labels.features import describe_labels, label_strings
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.methods.base import TrainingFacts, check_texts_alone
from labelgrove.methods.base import hold_out as hold_out  # methods take it from here
from labelgrove.methods.inputs import make_terms
from labelgrove.methods.linear.method import Linear
from labelgrove.metrics import evaluate
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.tokens import Tokens, tokenize
from labelgrove.scores.predictions import Predictions
from labelgrove.text.tfidf import Tfidf, TfidfParams

# What the checkpoint is chosen by (their mean), and what is reported of the held-out part.
CHOSEN_BY = ("P@1", "P@3", "P@5")
REPORTED = (*CHOSEN_BY, "nDCG@5", "R@10")
SPLIT_SEED = 0


@dataclass(frozen=True)
class TextFeatures:
    """tf-idf rows of the training texts, and the vectoriser that made them."""

    rows: CSR
    vectorizer: Tfidf


def tfidf_stage(
    stages: Stages, texts: Any, params: TfidfParams, *, threads: int | None
) -> TextFeatures:
    """tf-idf of the training texts, for trees, baselines and rankers."""
    made = make_terms(stages, texts, params, threads=threads)
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
    threads: int | None,
) -> dict[str, float]:
    """What the linear method reaches on the held-out part, trained on the same documents."""

    def compute(_: Any) -> Part:
        model = Linear(n_jobs=threads)
        model.fit(features.rows, corpus.labels, index=corpus.index)
        assert held_out.texts is not None
        found = model.predict(features.vectorizer.transform(held_out.texts), k=10)
        return Part(measured(found, held_out, corpus))

    inputs = {
        "metrics": [*REPORTED, "PSP@5"],
        "features": stages.key("tfidf"),
        "labels": corpus.labels,
        "held_out": [held_out.texts, held_out.labels],
    }
    return stages("linear-baseline", inputs, compute).config


def measured(
    predictions: Predictions, truth: Corpus, learnt_from: Corpus | None = None
) -> dict[str, float]:
    """The metrics that ``fit`` reports, as fractions; PSP@5 needs the documents learnt from.

    >>> import numpy as np
    >>> corpus = Corpus.from_lists(["x"], [["a"]])
    >>> best, score = np.array([[0]], np.int32), np.array([[0.5]], np.float32)
    >>> found = Predictions(best, score, np.array([1], np.int32), corpus.index, "product")
    >>> measured(found, corpus)["P@1"]
    1.0
    """
    names: tuple[str, ...] = REPORTED
    known: dict[str, Any] = {}
    if learnt_from is not None:
        names = (*REPORTED, "PSP@5")
        facts = TrainingFacts.of(learnt_from)
        known = {"train_frequencies": facts.frequencies, "n_train": facts.documents}
    found = evaluate(predictions, truth.labels, unknown=truth.unknown, metrics=names, **known)
    return {name: float(found[name]) for name in names}


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
    """Splits the documents, makes tf-idf and tokens, and trains the linear baseline.

    All that is the same for any ``random_state``, so that models with several seeds share it.
    """
    check_texts_alone(model.method, corpus)
    threads = model.n_jobs
    learnt_from, held_out = hold_out(corpus, model.held_out, SPLIT_SEED)
    if held_out is None and model.held_out:
        stages.reporter.message(
            f"held_out: {model.held_out:.0%} of {len(corpus):,} documents are too few to judge by; "
            "all are learnt from, the last weights are kept, and nothing is compared"
        )
    if held_out is not None:
        assert held_out.texts is not None and learnt_from.texts is not None
        known = repeated_texts(held_out.texts, learnt_from.texts)
        if known:
            counts = f"{known:,} of {len(held_out):,} held-out texts"
            stages.reporter.message(f"{counts} are learnt from, too: their numbers flatter")
    encoder = load_encoder(model.encoder)
    features = tfidf_stage(stages, learnt_from.texts, model.tfidf, threads=threads)
    linear = {}
    if model.baseline and held_out is not None:
        linear = baseline_stage(stages, features, learnt_from, held_out, threads=threads)
    tokens = tokens_stage(stages, "tokens", learnt_from.texts, encoder, threads=threads)
    held_out_tokens = None
    if held_out is not None:
        held_out_tokens = tokens_stage(
            stages, "held-out-tokens", held_out.texts, encoder, threads=threads
        )
    return Prepared(
        corpus, learnt_from, held_out, features, linear, encoder, tokens, held_out_tokens
    )
