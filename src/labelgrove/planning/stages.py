"""How long the stages of a training take, at rates that are measured here.

A plain layer replaces the heads of an encoder; the range is wide enough for their extra cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labelgrove.data.corpus import Corpus
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.model.interface import Model
from labelgrove.model.outline import EncoderWork, Outline, expected_widths
from labelgrove.planning.linear import Estimate, estimated, linear_rates, linear_work
from labelgrove.ranking.solver import RankerParams

SAMPLE = 256  # documents whose tokens are counted
WIDEST_HEAD = 30_000  # most labels that one layer scores at once; beyond, methods use shortlists
SHORTLIST = 2_000
MARGIN = 1.6


def describe(
    model: Model, outline: Outline, corpus: Corpus, label_tree: LabelTree | None, calibrate: bool
) -> dict[str, Any]:
    """The parts of a plan that follow from a method's outline."""
    widths = tuple(outline.widths if label_tree is None else label_tree.widths)
    facts: dict[str, Any] = {
        "tree": widths if outline.has_tree else (),
        "trees": outline.trees,
        "notes": outline.notes,
    }
    if not calibrate or (outline.encoder is not None and corpus.texts is None):
        return facts
    stages: dict[str, Estimate] = {}
    if outline.encoder is not None:
        about, stages = _encoder_stages(model, outline.encoder, corpus)
        facts |= about
    rates = linear_rates(outline, corpus, seed=model.random_state, threads=model.n_jobs)
    terms = rates.terms_per_document
    work = linear_work(corpus, widths, outline.ranker, terms=terms, trees=outline.trees)
    linear = estimated(rates, work, len(corpus))
    cpu = estimated(rates, work, len(corpus), kind="cpu")
    if not outline.has_ranker:
        del linear["ranker"]
    if not outline.has_tree or label_tree is not None:
        del linear["tree"]
    stages |= linear
    if outline.has_baseline:
        shape = expected_widths(TreeParams(), len(corpus.index))
        work = linear_work(corpus, shape, RankerParams(), terms=terms)
        parts = estimated(rates, work, len(corpus))
        stages["linear-baseline"] = parts["tree"] + parts["ranker"]
    if outline.encoder is None:
        facts["cpu_seconds"] = sum(cpu.values(), Estimate())
    return facts | {"stages": stages, "terms_per_document": terms or None}


def _encoder_stages(
    model: Model, work: EncoderWork, corpus: Corpus
) -> tuple[dict[str, Any], dict[str, Estimate]]:
    # A plan of the linear method must work without torch.
    from labelgrove.methods.neural import make_batches
    from labelgrove.nn.encoders.encoder import load_encoder
    from labelgrove.nn.encoders.tokens import tokenize
    from labelgrove.nn.training.devices import choose_device
    from labelgrove.planning.probe import encoder_rates

    training, seed = work.training, model.random_state
    encoder = load_encoder(work.encoder)
    device = choose_device(work.device)
    assert corpus.texts is not None
    size = min(len(corpus), max(SAMPLE, 5 * training.batch_size * training.accumulate))
    rows = np.sort(np.random.default_rng(seed).permutation(len(corpus))[:size])
    texts = [corpus.texts[row] for row in rows]
    tokens = tokenize(texts, encoder, encoder.max_tokens, threads=model.n_jobs)
    mean = float(tokens.lengths.mean())
    labels = len(corpus.index)
    rates = encoder_rates(
        encoder,
        tokens,
        training,
        lambda read: make_batches(read, encoder, training, device, seed),
        device=device,
        outputs=labels if labels <= WIDEST_HEAD else SHORTLIST,
    )
    about = {
        "tokens_per_document": mean,
        "cut_documents": float((tokens.lengths >= encoder.max_tokens).mean()),
        "device": str(device),
    }
    total = len(corpus) * mean
    reading = Estimate.around(work.reads * total / rates.reading, MARGIN)
    if work.learns:
        learning = Estimate.around(work.learns * total / rates.training, MARGIN)
        return about, {"network": learning + reading}
    return about, {"vectors": reading} if work.reads else {}
