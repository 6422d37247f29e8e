"""How long methods with an encoder take: tokens to learn from and to read, at rates measured here.

The heads on top are not rebuilt for it: a plain layer stands for them, and the range is wide enough
for what they cost besides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labelgrove.data.corpus import Corpus
from labelgrove.labels.tree import TreeParams
from labelgrove.planning.linear import estimated, linear_rates, linear_work
from labelgrove.planning.plan import Estimate, expected_widths
from labelgrove.ranking.solver import RankerParams

SAMPLE = 256  # documents whose tokens are counted
WIDEST_HEAD = 30_000  # labels that one layer scores at once; above, methods take shortlists
SHORTLIST = 2_000
MARGIN = 1.6


def describe_neural(model: Any, corpus: Corpus, label_tree: Any, calibrate: bool) -> dict[str, Any]:
    """The parts of a plan that methods with an encoder know."""
    widths = _widths(model, len(corpus.index))
    trees = getattr(model, "n_trees", 1)
    facts: dict[str, Any] = {"tree": widths if _has_tree(model, len(corpus.index)) else ()}
    facts["trees"] = trees
    if not calibrate or corpus.texts is None:
        return facts
    stages: dict[str, Estimate] = {}
    if getattr(getattr(model, "vectors", None), "kind", "") != "word2vec":
        described, stages = _encoder_stages(model, corpus)
        facts |= described
    else:
        facts["notes"] = ("learning word vectors takes longer than the time told here",)
    tree, ranker = getattr(model, "tree", TreeParams()), getattr(model, "ranker", RankerParams())
    rates = linear_rates(model, corpus, tree=tree, ranker=ranker)
    terms = rates.terms_per_document
    own = linear_work(corpus, widths, ranker, terms=terms, trees=trees)
    linear = estimated(rates, own, len(corpus))
    if not _has_ranker(model):
        del linear["ranker"]
    if not facts["tree"]:
        del linear["tree"]
    stages |= linear
    if getattr(model, "baseline", False) and model.held_out:
        shape = expected_widths(TreeParams(), len(corpus.index))
        work = linear_work(corpus, shape, RankerParams(), terms=terms)
        parts = estimated(rates, work, len(corpus))
        stages["linear-baseline"] = parts["tree"] + parts["ranker"]
    return facts | {"stages": stages, "terms_per_document": terms or None}


def _widths(model: Any, labels: int) -> tuple[int, ...]:
    if model.method == "cascadexml":
        from labelgrove.methods.cascadexml.params import cascade_tree_params

        return expected_widths(cascade_tree_params(labels, model.heads, model.tree), labels)
    if model.method == "xtransformer":
        from labelgrove.methods.xtransformer.indexing import cluster_count

        return cluster_count(labels, model.indexing.clusters), labels
    if model.method == "lightxml" and labels <= model.heads.one_head_up_to:
        return (labels,)
    return expected_widths(getattr(model, "tree", TreeParams()), labels)


def _has_tree(model: Any, labels: int) -> bool:
    one_head = model.method == "lightxml" and labels <= model.heads.one_head_up_to
    return not one_head or _has_ranker(model)


def _has_ranker(model: Any) -> bool:
    return model.rerank.enabled if hasattr(model, "rerank") else True


def _encoder_stages(model: Any, corpus: Corpus) -> tuple[dict[str, Any], dict[str, Estimate]]:
    from labelgrove.methods.neural import make_batches
    from labelgrove.nn.encoders.encoder import load_encoder
    from labelgrove.nn.encoders.tokens import tokenize
    from labelgrove.nn.training.devices import choose_device
    from labelgrove.planning.probe import encoder_rates

    encoder = load_encoder(model.encoder)
    device = choose_device(model.device)
    assert corpus.texts is not None
    few = min(len(corpus), max(SAMPLE, 5 * model.training.batch_size * model.training.accumulate))
    rows = np.sort(np.random.default_rng(model.random_state).permutation(len(corpus))[:few])
    texts = [corpus.texts[row] for row in rows]
    tokens = tokenize(texts, encoder, encoder.max_tokens, threads=model.n_jobs)
    mean = float(tokens.lengths.mean())
    labels = len(corpus.index)
    rates = encoder_rates(
        encoder,
        tokens,
        model.training,
        lambda read: make_batches(read, encoder, model.training, device, model.random_state),
        device=device,
        outputs=labels if labels <= WIDEST_HEAD else SHORTLIST,
    )
    learnt, read = token_passes(model, len(corpus))
    described = {
        "tokens_per_document": mean,
        "cut_documents": float((tokens.lengths >= encoder.max_tokens).mean()),
        "device": str(device),
    }
    stages = {}
    if learnt:
        stages["network"] = Estimate.around(
            learnt * len(corpus) * mean / rates.training, MARGIN
        ) + Estimate.around(read * len(corpus) * mean / rates.reading, MARGIN)
    elif read:
        stages["vectors"] = Estimate.around(read * len(corpus) * mean / rates.reading, MARGIN)
    return described, stages


def token_passes(model: Any, documents: int) -> tuple[float, float]:
    """How often all documents are learnt from, and how often they are read without learning."""
    training, held_out = model.training, getattr(model, "held_out", 0.0)
    epochs = training.epochs * (1 - held_out)
    if training.max_steps is not None:
        epochs = training.max_steps * training.batch_size * training.accumulate / documents
    evaluations = max(1.0, training.epochs * training.evaluations_per_epoch)
    read = held_out * (evaluations + 1)
    if model.method in ("lightxml", "cascadexml"):
        return epochs, read + (1.0 if model.rerank.enabled else 0.0)
    if model.method == "xtransformer":
        indexing = model.indexing
        twice = indexing.vectors == "pifa-neural" and indexing.embeddings == "fine-tuned"
        return (2 * epochs, read + 2) if twice else (epochs, read + 1)
    if model.method == "xrtransformer":
        return epochs, read + 3  # vectors after each level, and for the first heads
    kind = getattr(getattr(model, "vectors", None), "kind", "pretrained")
    return (epochs, read + 1) if kind == "fine-tuned" else (0.0, 1.0)
