"""A plan of a training before it starts: sizes, memory and time.

Times come from what is measured here and now (``timing.py``): small trainings of the linear parts
and a few updates of an encoder. A plain layer replaces the heads of the encoder.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np

from labelgrove.core.jsonio import JsonObject
from labelgrove.core.memory import available_memory, format_size
from labelgrove.core.params import Settings
from labelgrove.core.resources import using
from labelgrove.data.corpus import Corpus
from labelgrove.data.records import names_in
from labelgrove.errors import ConfigError, LabelgroveError, UnsupportedError
from labelgrove.experiments.planning import timing
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.base import Model
from labelgrove.methods.cost_estimate import EncoderWork

Key: TypeAlias = tuple[object, ...]  # what a stage depends on
T = TypeVar("T")
RARE = 5  # documents: a label with fewer is hard to learn


@dataclass(frozen=True)
class Estimate:
    """A range of seconds, because samples differ from the corpus and machines are busy at times."""

    low: float = 0.0
    high: float = 0.0

    @classmethod
    def around(cls, seconds: float) -> Estimate:
        """A range that has ``seconds`` in the middle."""
        return cls(seconds / timing.MARGIN, seconds * timing.MARGIN)

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        low, high = duration(self.low), duration(self.high)
        if self.high < 1:
            return high
        return f"about {high}" if low == high else f"{low} to {high}"


def duration(seconds: float) -> str:
    """Rounded to the precision of an estimate."""
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{round(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
    calibration_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    derived: Mapping[str, tuple[object, str]] = field(default_factory=dict)  # values and reasons

    @property
    def seconds(self) -> Estimate | None:
        """The whole training, or None if it could not be estimated."""
        return sum(self.stages.values(), Estimate()) if self.stages else None

    def to_json(self) -> JsonObject:
        """Plain values; times are [low, high]."""
        plain = asdict(self)
        plain["stages"] = {name: _pair(span) for name, span in self.stages.items()}
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
            f"plan: {self.method} on {_count(self.documents, 'document')}, "
            f"{_count(self.labels, 'label')}, "
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
            lines.append(f"  time     {self.seconds}")
            if self.seconds.high >= 1:
                width = max(map(len, self.stages))
                lines += [f"    {name:<{width}} {span}" for name, span in self.stages.items()]
        lines.extend(
            f"  setting  {name} = {_shown(value)}: {reason}"
            for name, (value, reason) in self.derived.items()
        )
        lines.extend(f"  note     {note}" for note in self.notes)
        return lines


def plan_training(
    model: Model, corpus: Corpus, *, label_tree: LabelTree | None = None, calibrate: bool = True
) -> Plan:
    """What fitting ``model`` on ``corpus`` will need; measuring takes a few seconds at most.

    Without ``calibrate``, nothing is measured and no time is reported.

    >>> from labelgrove import Linear
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> plan_training(Linear(), corpus, calibrate=False).labels
    2
    """
    start = time.perf_counter()
    model = model.resolve_defaults(corpus)
    counts = np.bincount(corpus.labels.indices, minlength=len(corpus.index))
    facts: JsonObject = {
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
    cost = model.cost_estimate(len(corpus), len(corpus.index))
    if cost is not None:
        widths = tuple(cost.widths if label_tree is None else label_tree.widths)
        facts |= {"tree": widths if cost.has_tree and cost.tfidf else (), "trees": cost.trees}
    if calibrate:
        planner = _Planner(corpus, label_tree)
        try:
            facts["stages"] = planner.times(model)
        except ConfigError:
            raise  # training would fail, too
        except (LabelgroveError, RuntimeError) as error:  # such as too little memory on a GPU
            # Training reports it if it matters there; a plan without times is still useful.
            notes.append(f"no time is estimated: {str(error).splitlines()[0]}")
        facts |= planner.facts
    return Plan(**facts, notes=tuple(notes), calibration_seconds=time.perf_counter() - start)


class _Planner:
    """Estimates the stages of models on a corpus; each thing is measured once."""

    def __init__(self, corpus: Corpus, label_tree: LabelTree | None) -> None:
        self.corpus, self.label_tree = corpus, label_tree
        self.facts: JsonObject = {}  # of a plan, learnt while measuring
        self.measured: dict[str, Any] = {}
        self.done: set[Key] = set()  # stages of earlier steps, which later ones share

    def _once(self, key: str, measure: Callable[[], T]) -> T:
        if key not in self.measured:
            self.measured[key] = measure()
        value: T = self.measured[key]
        return value

    def times(self, model: Model) -> dict[str, Estimate]:
        """Seconds per stage, or per step of a method that trains several models."""
        steps = model.steps(len(self.corpus))
        if not steps:
            return {name: span for name, _, span in self._stages(model, len(self.corpus))}
        if self.label_tree is not None:
            raise UnsupportedError(f"{model.method} leaves out steps if a label tree is given")
        spans: dict[str, Estimate] = {}
        for step in steps:
            if step.merged:
                spans[step.name] = Estimate.around(timing.MERGE * step.documents * step.merged)
                continue
            all_stages = [list(self._stages(m, step.documents)) for m in step.models]
            new = [[one for one in stages if one[1] not in self.done] for stages in all_stages]
            self.done |= {key for stages in new for _, key, _ in stages}
            if len(new) == 1 and step.models[0].encoders():
                spans |= {f"{step.name}: {name}": span for name, _, span in new[0]}
            elif any(new):
                sums = [sum((span for *_, span in stages), Estimate()) for stages in new]
                spans[step.name] = Estimate(min(s.low for s in sums), max(s.high for s in sums))
        return spans

    def _stages(self, model: Model, documents: int) -> Iterator[tuple[str, Key, Estimate]]:
        """Name, key and seconds of the stages of one model."""
        corpus, share = self.corpus, documents / len(self.corpus)
        model = model.resolve_defaults(corpus)
        cost = model.cost_estimate(len(corpus), len(corpus.index))
        if cost is None:
            if model.encoders():
                raise UnsupportedError(f"{model.method} with an encoder cannot be timed")
            key = f"{model.method} {model.to_config()}"
            seconds = self._once(key, lambda: timing.two_samples(model, corpus))
            yield model.method, (key, documents), Estimate.around(share * seconds)
            return
        if cost.tfidf is None:
            assert cost.encoder is not None
            yield from self._encoder_stages(model, cost.encoder, documents)
            return
        widths = cost.widths if self.label_tree is None else self.label_tree.widths
        settings = model.get_params(deep=False)
        names = settings.get("label_texts")
        readings = ("features", "sparse_norm")
        given: Settings = {name: settings[name] for name in readings if name in settings}
        key = f"{cost.tfidf} {cost.tree} {cost.ranker} {given} {cost.vectors}"
        with using(threads=model.n_jobs):
            rates, terms = self._once(key, lambda: timing.linear_rates(cost, corpus, given))
        self.facts["terms_per_document"] = terms or None
        work = timing.linear_work(corpus, widths, cost.ranker, terms=terms)
        size = terms + corpus.width
        work["ranker"] *= cost.rankers * (size + cost.vectors) / (size or 1.0)
        if cost.shortlist is not None:
            pairs = len(corpus) ** timing.RANKER_GROWTH * cost.shortlist
            work["ranker"] = timing.SHORTLIST_COST * pairs * (size + cost.vectors)
        spans = {name: Estimate.around(share * rates[name] * work[name]) for name in work}
        # Networks hold documents out by themselves, so they share nothing with linear models.
        common = documents, names, "" if cost.encoder is None else model.method
        yield "tfidf", ("tfidf", *common, str(cost.tfidf)), spans["tfidf"]
        if cost.encoder is not None:
            yield from self._encoder_stages(model, cost.encoder, documents)
        for number in range(cost.trees):
            kind = *common, number, str(cost.tree), str(cost.ranker)
            suffix = f"-{number}" if number else ""
            if cost.has_tree and self.label_tree is None:
                yield f"tree{suffix}", ("tree", *kind), spans["tree"]
            if cost.has_ranker:
                yield f"ranker{suffix}", ("ranker", *kind), spans["ranker"]

    def _encoder_stages(
        self, model: Model, work: EncoderWork, documents: int
    ) -> Iterator[tuple[str, Key, Estimate]]:
        if self.corpus.texts is None:
            raise UnsupportedError("the encoder has no texts to read")
        training, texts, labels = work.training, self.corpus.texts, len(self.corpus.index)
        batch = training.batch_size * training.accumulate
        key = f"{work.encoder} {batch} {work.device}"
        with using(threads=model.n_jobs, device=work.device):
            costs = self._once(key, lambda: timing.encoder_costs(work, texts, labels))
        self.facts |= {"tokens_per_document": costs.tokens, "cut_documents": costs.cut}
        self.facts["device"] = costs.device
        spans = {"tokens": Estimate.around(documents * costs.text)}
        passes = costs.token * documents * costs.tokens
        learning = work.learns * (passes + math.ceil(documents / batch) * costs.update)
        reading = work.reads * passes / timing.READING.get(costs.device, 3.0)
        seconds = timing.START.get(costs.device, 0.5) + learning + reading
        spans["network" if work.learns else "vectors"] = Estimate.around(seconds)
        for name, span in spans.items():
            own = model.method if name == "network" else ""
            yield name, (name, own, documents, key), span


def _shown(value: object) -> str:
    """As the value is written in a config file."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _pair(span: Estimate | None) -> list[float] | None:
    return None if span is None else [round(span.low, 3), round(span.high, 3)]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
