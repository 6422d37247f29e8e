"""A plan of a training before it starts: sizes, memory and time.

Times come from rates that are measured here and now: a small fit for the linear parts
(``linear.py``), a few updates for an encoder (``probe.py``). A plain layer replaces the heads of
the encoder; the range is wide enough for their extra cost.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from labelgrove.core.memory import available_memory, format_size
from labelgrove.data.corpus import Corpus
from labelgrove.data.records import names_in
from labelgrove.errors import ConfigError, LabelgroveError
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.model.interface import Model
from labelgrove.model.outline import EncoderWork, Outline, expected_widths
from labelgrove.planning.linear import Estimate, estimated, linear_rates, linear_work
from labelgrove.ranking.solver import RankerParams

RARE = 5  # documents: a label with fewer is hard to learn
SAMPLE = 256  # documents whose tokens are counted
WIDEST_HEAD = 30_000  # most labels that one layer scores at once; beyond, methods use shortlists
SHORTLIST = 2_000
MARGIN = 1.6


@dataclass(frozen=True)
class Plan:
    """A plan of training ``method`` on a corpus. ``tree`` has the nodes per level; ``stages`` the
    seconds per stage, and nothing if no rate could be measured (``notes`` say why)."""

    method: str
    documents: int
    labels: int
    labels_per_document: float
    rare_labels: int
    unused_labels: int
    tree: tuple[int, ...] = ()
    trees: int = 1
    terms_per_document: float | None = None
    dense_columns: int = 0
    tokens_per_document: float | None = None
    cut_documents: float | None = None  # share of documents that are too long for the encoder
    device: str | None = None
    memory_bytes: int = 0
    free_bytes: int | None = None
    stages: Mapping[str, Estimate] = field(default_factory=dict)
    cpu_seconds: Estimate | None = None  # of the linear stages, by all threads
    calibration_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    derived: Mapping[str, tuple[Any, str]] = field(default_factory=dict)  # values and reasons

    @property
    def seconds(self) -> Estimate | None:
        """The whole training, or None if it could not be estimated."""
        return sum(self.stages.values(), Estimate()) if self.stages else None

    def to_json(self) -> dict[str, Any]:
        """Plain values; times are [low, high]."""
        plain = asdict(self)
        plain["stages"] = {name: _pair(span) for name, span in self.stages.items()}
        plain["cpu_seconds"] = _pair(self.cpu_seconds)
        plain["derived"] = {
            name: {"value": value, "reason": reason}
            for name, (value, reason) in self.derived.items()
        }
        plain["calibration_seconds"] = round(self.calibration_seconds, 3)
        plain["seconds"] = _pair(self.seconds)
        return plain

    def lines(self) -> list[str]:
        """The plan as text."""
        lines = [
            f"plan: {self.method} on {self.documents:,} documents, {_count(self.labels, 'label')}, "
            f"{self.labels_per_document:.2f} labels per document"
        ]
        if self.rare_labels or self.unused_labels:
            rare = f"{_count(self.rare_labels, 'label')} with fewer than {RARE} documents"
            unused = f", {self.unused_labels:,} without any" if self.unused_labels else ""
            lines.append(f"  rare     {rare} ({self.rare_labels / self.labels:.0%}){unused}")
        if self.tree:
            shape = " - ".join(f"{width:,}" for width in self.tree)
            trees = f", {self.trees} trees" if self.trees > 1 else ""
            lines.append(f"  tree     {shape} nodes{trees}")
        if self.terms_per_document is not None:
            dense = f", {self.dense_columns:,} dense columns" if self.dense_columns else ""
            lines.append(f"  features {self.terms_per_document:,.0f} terms per document{dense}")
        if self.tokens_per_document is not None:
            cut = f", {self.cut_documents:.0%} of them cut" if self.cut_documents else ""
            lines.append(
                f"  tokens   {self.tokens_per_document:,.0f} per document{cut}; on {self.device}"
            )
        free = "" if self.free_bytes is None else f" ({format_size(self.free_bytes)} are free)"
        lines.append(f"  memory   about {format_size(self.memory_bytes)}{free}")
        if self.seconds is not None:
            longest = sorted(self.stages.items(), key=lambda item: -item[1].high)
            shares = ", ".join(f"{name} {span}" for name, span in longest[:3] if span.high >= 1)
            lines.append(f"  time     {self.seconds}" + (f" ({shares})" if shares else ""))
        lines.extend(
            f"  setting  {name} = {_shown(value)}: {reason}"
            for name, (value, reason) in self.derived.items()
        )
        lines.extend(f"  note     {note}" for note in self.notes)
        return lines


def plan_training(
    model: Model, corpus: Corpus, *, label_tree: LabelTree | None = None, calibrate: bool = True
) -> Plan:
    """What fitting ``model`` on ``corpus`` will need; measuring rates takes a second or two.

    Without ``calibrate``, nothing is measured and no time is reported.

    >>> from labelgrove import Linear
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> plan_training(Linear(), corpus, calibrate=False).labels
    2
    """
    start = time.perf_counter()
    model = model.settled(corpus)
    counts = np.bincount(corpus.labels.indices, minlength=len(corpus.index))
    facts: dict[str, Any] = {
        "method": model.method,
        "documents": len(corpus),
        "labels": len(corpus.index),
        "labels_per_document": round(corpus.labels.nnz / max(len(corpus), 1), 4),
        "rare_labels": int((counts < RARE).sum()),
        "unused_labels": int((counts == 0).sum()),
        "dense_columns": corpus.width,
        "memory_bytes": int(model.estimate_memory(corpus)),
        "free_bytes": available_memory(),
        "derived": model.derived_,
    }
    notes: list[str] = []
    if corpus.texts is not None and (names := names_in(corpus.texts)) is not None:
        notes.append(f"the model reads documents with the texts {names}")
    try:
        facts |= _describe(model, corpus, label_tree, calibrate)
    except ConfigError:
        raise  # training would fail, too
    except LabelgroveError as error:
        # Training reports it if it matters there; a plan without times is still useful.
        notes.append(f"no time can be estimated: {error}")
    facts["notes"] = (*facts.get("notes", ()), *notes)
    return Plan(**facts, calibration_seconds=time.perf_counter() - start)


def _describe(
    model: Model, corpus: Corpus, label_tree: LabelTree | None, calibrate: bool
) -> dict[str, Any]:
    if model.submodels():
        return _describe_members(model, corpus, label_tree, calibrate)
    outline = model.outline(len(corpus), len(corpus.index))
    if outline is None:
        return {"notes": (f"no time can be estimated for the method {model.method}",)}
    return _stages(model, outline, corpus, label_tree, calibrate)


def _describe_members(
    model: Model, corpus: Corpus, label_tree: LabelTree | None, calibrate: bool
) -> dict[str, Any]:
    """An ensemble takes as long as its members; shared stages are counted for each of them."""
    stages: dict[str, Estimate] = {}
    for number, member in enumerate(model.submodels(), 1):
        facts = _describe(member.settled(corpus), corpus, label_tree, calibrate)
        whole = sum(facts.get("stages", {}).values(), Estimate())
        if whole.high:
            stages[f"member {number} ({member.method})"] = whole
    notes = ("members that share features or trees take less",) if len(stages) > 1 else ()
    return {"stages": stages, "notes": notes}


def _stages(
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
    settings = model.get_params(deep=False)
    names = ("features", "sparse_norm")
    given: dict[str, Any] = {name: settings[name] for name in names if name in settings}
    rates = linear_rates(
        outline, corpus, given=given, seed=model.random_state, threads=model.n_jobs
    )
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
    from labelgrove.methods.training import make_batches
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


def _shown(value: Any) -> str:
    """As the value is written in a config file."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _pair(span: Estimate | None) -> list[float] | None:
    return None if span is None else [round(span.low, 3), round(span.high, 3)]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
