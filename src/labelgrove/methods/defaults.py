"""Settings that follow the corpus, the encoder and the device where they are left on "auto".

All rules are here, each with its reason in words; a value that the user sets is never changed.
benchmarks/NOTES.md says what each rule was measured to bring. A rule reads the settings before it
in :data:`RULES`, whether derived or given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from labelgrove.core.aliases import TableView
from labelgrove.core.arrays import Int64

# Texts: half of them are read whole, up to a limit; three quarters if these are short.
MOST_TOKENS, MOST_TOKENS_ON_CPU, SHORT_TEXTS, TOKENS_STEP = 512, 128, 128, 32
# Batches: as many documents as have this many tokens, but an epoch has at least so many updates.
TOKENS_PER_UPDATE, UPDATES_PER_EPOCH, SMALLEST_BATCH, LARGEST_BATCH = 32_768, 200, 16, 512
# Rates: for this batch and states of this width.
RATE, RATE_BATCH, RATE_WIDTH = 2e-4, 128, 384
# Weights are averaged in trainings of this many updates, over this many samples.
FEWEST_AVERAGED, AVERAGE_SAMPLES, MOST_AVERAGED_LABELS = 200, 100, 300_000
MOST_HELD_OUT, HELD_OUT = 1000, 0.05
SPLIT_SEED = 0  # the same documents are held out for any random_state
MANY_EPOCHS = 5
# A head over all labels costs a third more time than groups at 180,000 labels, twice at a million.
MOST_LABELS_OF_FULL_HEAD = 1_000_000
KEPT_FROM_BELOW, ALL_KEPT = (400, 256, 128), 512


class Derived(NamedTuple):
    """A derived value, and why it is this one."""

    value: Any
    reason: str


@dataclass(frozen=True)
class TrainingNeeds:
    """What a method's training asks for.

    ``updates`` are enough, but no document is seen fewer or more often than ``epochs`` says. Heads
    learn ``head_rate`` times as fast as the encoder. ``dropouts`` are those of heads for few and
    for many epochs.
    """

    updates: int = 4000
    epochs: tuple[int, int] = (3, 10)
    head_rate: float = 10.0
    dropouts: tuple[float, float] = (0.2, 0.3)


@dataclass(frozen=True)
class DefaultInputs:
    """What settings are derived from; ``lengths`` gives the tokens of a sample of the texts."""

    documents: int
    labels: int
    clusters: tuple[int, ...]
    width: int
    positions: int | None
    pooling: str | None  # that the encoder was trained with
    gpu: bool
    processes: int
    lengths: Callable[[int], Int64]


class _View:
    """Settings as a rule sees them, and what follows from several of them."""

    def __init__(self, settings: TableView, case: DefaultInputs, needs: TrainingNeeds) -> None:
        self.settings = dict(settings)
        self.case, self.needs = case, needs

    def __getitem__(self, name: str) -> Any:
        return self.settings[name]

    @cached_property
    def most_tokens(self) -> int:
        limit = MOST_TOKENS if self.case.gpu else MOST_TOKENS_ON_CPU
        return min(limit, self.case.positions or limit)

    @cached_property
    def mean_tokens(self) -> float:
        """Tokens that are read of a text."""
        longest = int(self["encoder.max_tokens"])
        return max(1.0, float(self.case.lengths(longest).mean()))

    @cached_property
    def learnt_from(self) -> int:
        return max(1, round(self.case.documents * (1 - float(self["held_out"]))))

    @property
    def per_update(self) -> int:
        """Documents."""
        return int(self["training.batch_size"] * self["training.accumulate"] * self.case.processes)

    @property
    def updates_per_epoch(self) -> int:
        return math.ceil(self.learnt_from / self.per_update)

    @property
    def steps(self) -> tuple[int, str] | None:
        """Updates, where a setting limits them, and its name."""
        limits = {
            "heads.steps": sum(self.settings.get("heads.steps") or []),
            "training.max_steps": self["training.max_steps"] or 0,
        }
        return min(((count, name) for name, count in limits.items() if count), default=None)

    @property
    def updates(self) -> int:
        if self.steps is not None:
            return self.steps[0]
        epochs: float = self["training.epochs"]
        return math.ceil(epochs * self.updates_per_epoch)


def derive(settings: TableView, case: DefaultInputs, needs: TrainingNeeds) -> dict[str, Derived]:
    """Values for the settings that are "auto", by dotted name."""
    view = _View(settings, case, needs)
    derived: dict[str, Derived] = {}
    for name, rule in RULES.items():
        if view.settings.get(name) == "auto":
            derived[name] = rule(view)
            view.settings[name] = derived[name].value
    return derived


def held_out_share(documents: int) -> float:
    """The share of the documents that choose between models or checkpoints."""
    return min(HELD_OUT, round(MOST_HELD_OUT / documents, 4))


def _held_out(view: _View) -> Derived:
    share = held_out_share(view.case.documents)
    return Derived(share, f"{HELD_OUT:.0%}, at most about {MOST_HELD_OUT:,} documents")


def _max_tokens(view: _View) -> Derived:
    most = view.most_tokens
    lengths = view.case.lengths(most)
    median, upper = np.quantile(lengths, [0.5, 0.75], method="inverted_cdf").tolist()
    whole = int(max(median, min(upper, SHORT_TEXTS)))
    length = min(most, max(TOKENS_STEP, -(-whole // TOKENS_STEP) * TOKENS_STEP))
    read = float((lengths <= length).mean()) if length < most else float((lengths < most).mean())
    where = "" if view.case.gpu or length < most else ", the most on a CPU"
    return Derived(length, f"{read:.0%} of the texts are not longer{where}")


def _pooling(view: _View) -> Derived:
    if view.case.pooling is not None:
        return Derived(view.case.pooling, "as the encoder was trained")
    return Derived("mean", "the encoder does not say; heads learn faster from the mean")


def _batch_size(view: _View) -> Derived:
    fitting = TOKENS_PER_UPDATE / view.mean_tokens
    often = view.learnt_from / UPDATES_PER_EPOCH
    whole = min(max(min(fitting, often), SMALLEST_BATCH), LARGEST_BATCH)
    size = 2 ** int(math.log2(whole))
    shared = view["training.accumulate"] * view.case.processes
    if often < fitting:
        reason = f"an epoch has {math.ceil(view.learnt_from / size):,} updates"
    else:
        reason = f"about {round(size * view.mean_tokens, -3):,.0f} tokens per update"
    return Derived(max(1, size // shared), reason)


def _epochs(view: _View) -> Derived:
    fewest, most = view.needs.epochs
    if view.steps is not None:
        count, setting = view.steps
        return Derived(count / view.updates_per_epoch, f"by {setting}")
    epochs = min(max(round(view.needs.updates / view.updates_per_epoch), fewest), most)
    return Derived(float(epochs), f"{epochs * view.updates_per_epoch:,} updates")


def _lr(view: _View) -> Derived:
    narrower = min(1.0, RATE_WIDTH / view.case.width)
    rate = RATE * (view.per_update / RATE_BATCH) ** (1 / 3) * narrower
    reason = f"for {view.per_update} documents per update and states of {view.case.width}"
    return Derived(_two_digits(rate), reason)


def _head_lr(view: _View) -> Derived:
    factor = view.needs.head_rate
    return Derived(_two_digits(factor * view["training.lr"]), f"{factor:g} times training.lr")


def _average(view: _View) -> Derived:
    if view.updates < FEWEST_AVERAGED:
        return Derived("none", f"{view.updates:,} updates are too few for a mean of weights")
    if view.case.labels > MOST_AVERAGED_LABELS:
        return Derived("none", f"a mean of {view.case.labels:,} labels' weights takes long")
    return Derived("swa", "the mean of the weights over the second half is better than the last")


def _swa_every(view: _View) -> Derived:
    if view["training.average"] != "swa":
        return Derived(100, "not used")
    every = min(max(view.updates // (2 * AVERAGE_SAMPLES), 1), 100)
    return Derived(every, f"about {view.updates // (2 * every):,} samples")


def _evaluations(view: _View) -> Derived:
    if view["training.average"] == "swa":
        return Derived(0.0, "the mean of weights is ready at the end")
    return Derived(1.0, "the best epoch is kept")


def _full_head(view: _View) -> Derived:
    case, most = view.case, view["heads.one_head_up_to"]
    if case.labels <= most:
        return Derived(False, f"up to {most:,} labels have one head anyway")
    if not case.gpu:
        return Derived(False, "a head over all labels is slow on a CPU")
    if case.labels > MOST_LABELS_OF_FULL_HEAD:
        return Derived(False, f"more than {MOST_LABELS_OF_FULL_HEAD:,} labels take long")
    if view["heads.negatives"] != "dynamic":
        return Derived(False, "heads.negatives asks for groups")
    if case.processes > 1:
        return Derived(False, "a head over all labels learns in one process")
    return Derived(True, f"more than {most:,} labels: all of them are wrong answers, not a few")


def _dropout(view: _View) -> Derived:
    few, many = view.needs.dropouts
    epochs = view["training.epochs"]
    return Derived(many if epochs > MANY_EPOCHS else few, f"{epochs:g} epochs")


def _kept(view: _View) -> Derived:
    clusters = view.case.clusters
    if not clusters:
        return Derived(KEPT_FROM_BELOW[0], "there are no clusters")
    if len(clusters) == 1 and clusters[0] <= ALL_KEPT:
        return Derived(clusters[0], "all clusters: they cut nothing off")
    most = [KEPT_FROM_BELOW[min(n, len(KEPT_FROM_BELOW) - 1)] for n in range(len(clusters))]
    counts = [min(pair) for pair in zip(clusters, reversed(most), strict=True)]
    return Derived(counts, f"of {' - '.join(f'{width:,}' for width in clusters)} clusters")


def _level_weights(view: _View) -> Derived:
    clusters = view.case.clusters
    if len(clusters) == 1 and view["heads.kept"] == clusters[0]:
        return Derived([0.2, 1.0], "clusters that cut nothing off count less")
    return Derived([], "all levels count the same")


def _reranks(view: _View) -> Derived:
    return Derived(True, "tf-idf reads the whole text and gained points wherever it was tried")


RULES: dict[str, Callable[[_View], Derived]] = {
    "held_out": _held_out,
    "encoder.max_tokens": _max_tokens,
    "encoder.pooling": _pooling,
    "training.batch_size": _batch_size,
    "training.epochs": _epochs,
    "training.lr": _lr,
    "training.head_lr": _head_lr,
    "training.average": _average,
    "training.swa_every": _swa_every,
    "training.evaluations_per_epoch": _evaluations,
    "heads.full": _full_head,
    "heads.dropout": _dropout,
    "heads.kept": _kept,
    "heads.level_weights": _level_weights,
    "rerank.enabled": _reranks,
}


def _two_digits(rate: float) -> float:
    return float(f"{rate:.1e}")
