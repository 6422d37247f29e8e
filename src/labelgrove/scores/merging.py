"""Several models' lists of labels as one: the rules of ensembles, and learnt weights.

Every rule but round-robin turns a list's scores into values and takes their mean over the lists,
where a list without the label counts as 0. A list has the labels of one document by one model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, entry_rows
from labelgrove.core.late import expit
from labelgrove.core.topk import Combine, TopK, merge_lists
from labelgrove.errors import ConfigError, DataError
from labelgrove.scores.predictions import Predictions, ScoreKind

Rule = Literal["mean", "rank", "softmax", "sigmoid", "round-robin"]
WEIGHTED: tuple[Rule, ...] = ("mean", "rank", "softmax", "sigmoid")

# Weights are chosen by precision at these ranks, among these steps; all start at 1.
MEASURED_AT = (1, 3, 5)
FIRST_RANKS = 20  # of each list; labels after them hardly get among the first five
STEPS = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
MOST_ROUNDS = 10


def merge(
    found: Sequence[Predictions],
    *,
    k: int,
    rule: Rule = "mean",
    weights: Sequence[float] | None = None,
    places: int | None = None,
    threads: int | None = None,
) -> Predictions:
    """The k best labels of each document over the predictions of several models.

    - ``mean``: the mean of the scores. For margins, a list without the label counts as much as its
      last label, because 0 would be a good margin.
    - ``rank``: ``places`` minus the label's rank (from 0), then the mean.
    - ``softmax``: over the scores of a list, then the mean.
    - ``sigmoid``: of each score, then the mean.
    - ``round-robin``: the first of each list in turn, then the second of each, and so on.

    ``places`` is how many labels each model was asked for, by default the longest list. ``weights``
    are for all rules but round-robin.

    >>> from labelgrove import LabelIndex
    >>> index = LabelIndex("abc")
    >>> first = Predictions.from_scores([[0.9, 0.5, 0.0]], k=2, index=index)
    >>> second = Predictions.from_scores([[0.0, 0.7, 0.8]], k=2, index=index)
    >>> merge([first, second], k=3).names()
    [['b', 'a', 'c']]
    >>> merge([first, second], k=3, rule="round-robin").names()
    [['a', 'c', 'b']]
    """
    _check_lists(found)
    if rule not in get_args(Rule):
        raise ConfigError(f"rule: must be one of {', '.join(get_args(Rule))}, got {rule!r}")
    if rule == "round-robin" and weights is not None:
        raise ConfigError("weights: round-robin takes all members in turn and has no weights")
    kind = _kind_of_result(found, rule)
    columns, values = _lists(found, rule, places)
    options: dict[str, Any] = {"combine": _combine(rule, kind), "weights": weights}
    best = merge_lists(columns, values, k, **options, threads=threads)
    return Predictions(*best, found[0].index, kind)


def _lists(
    found: Sequence[Predictions], rule: Rule, places: int | None
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Models x documents x ranks: columns, -1 after the end of a list, and values of the scores."""
    width = max(part.k for part in found)
    shape = (len(found), len(found[0]), width)
    columns = np.full(shape, -1, np.int32)
    scores = np.full(shape, -np.inf, np.float32)
    for number, part in enumerate(found):
        columns[number, :, : part.k] = np.where(part.used, part.columns, -1)
        scores[number, :, : part.k] = np.where(part.used, part.scores, -np.inf)
    return columns, _values(rule, scores, width if places is None else max(places, width))


def _combine(rule: Rule, kind: ScoreKind) -> Combine:
    if rule == "round-robin":
        return "largest"
    return "mean-or-last" if rule == "mean" and kind == "margin" else "mean"


def _values(rule: Rule, scores: npt.NDArray[np.float32], places: int) -> npt.NDArray[np.float32]:
    """The values of scores, which are -inf after the end of a list."""
    if rule == "mean":
        return scores
    lists, _, width = scores.shape
    if rule in ("rank", "round-robin"):
        ranks = np.broadcast_to(places - np.arange(width, dtype=np.float64), scores.shape)
        if rule == "rank":
            return ranks.astype(np.float32)
        # Of labels with equal ranks, that of the earlier list comes first.
        turns = (lists - np.arange(lists)) / (lists + 1)
        return np.asarray(ranks + turns[:, None, None], np.float32)
    exact = scores.astype(np.float64)
    if rule == "sigmoid":
        return np.asarray(expit(exact), np.float32)
    with np.errstate(invalid="ignore"):  # -inf - -inf, in empty lists
        powers = np.exp(exact - exact.max(axis=2, keepdims=True, initial=-np.inf))
        return np.asarray(powers / powers.sum(axis=2, keepdims=True), np.float32)


def _check_lists(found: Sequence[Predictions]) -> None:
    if not found:
        raise DataError("nothing to merge: no predictions were given")
    for number, part in enumerate(found[1:], 2):
        if part.index is not found[0].index and part.index != found[0].index:
            raise DataError(
                f"predictions 1 and {number} are over different labels "
                f"({len(found[0].index):,} and {len(part.index):,}) and cannot be merged"
            )
        if len(part) != len(found[0]):
            raise DataError(
                f"predictions 1 and {number} are of {len(found[0]):,} and {len(part):,} documents"
            )


def _kind_of_result(found: Sequence[Predictions], rule: Rule) -> ScoreKind:
    if rule in ("rank", "round-robin"):
        return "margin"
    kinds = {part.score_kind for part in found}
    if rule == "mean":
        if len(kinds) == 1:
            return kinds.pop()
        if "margin" in kinds:
            raise ConfigError(
                "rule: the mean of margins and of scores between 0 and 1 means nothing; "
                "choose rank, softmax, sigmoid or round-robin, or let all members give one kind"
            )
    return "product"


@dataclass(frozen=True)
class Learnt:
    """The best rule and weights, and the ``precision`` at 1, 3 and 5 that they reach."""

    rule: Rule
    weights: tuple[float, ...]
    precision: tuple[float, ...]


def learn_weights(
    found: Sequence[Predictions],
    truth: CSR,
    *,
    rules: Iterable[Rule] = WEIGHTED,
    places: int | None = None,
    threads: int | None = None,
) -> Learnt:
    """The rule and the weights with the best mean of P@1, P@3 and P@5 on held-out documents.

    Tries a few values for each member's weight in turn, with the others fixed, until nothing
    improves. Equal weights and earlier rules win unless others are better.
    """
    _check_lists(found)
    true, index, k = _pairs(truth), found[0].index, max(MEASURED_AT)
    best: Learnt | None = None
    for rule in rules:
        try:
            combine = _combine(rule, _kind_of_result(found, rule))
        except ConfigError:  # there is no mean of such scores
            continue
        columns, values = _lists(found, rule, places)
        merged_first = partial(
            merge_lists,
            np.ascontiguousarray(columns[:, :, :FIRST_RANKS]),
            np.ascontiguousarray(values[:, :, :FIRST_RANKS]),
            k,
            combine=combine,
            threads=threads,
        )

        def reached(weights: Sequence[float], merged: Any = merged_first) -> float:
            first: TopK = merged(weights=weights)
            return float(sum(_precision(Predictions(*first, index), true)))

        weights = _climb(reached, len(found))
        merged = merge(found, k=k, rule=rule, weights=weights, places=places, threads=threads)
        learnt = Learnt(rule, tuple(weights), _precision(merged, true))
        if best is None or sum(learnt.precision) > sum(best.precision) + 1e-12:
            best = learnt
    if best is None:
        raise ConfigError("rule: none of those given can merge these scores")
    return best


def cross_fitted(
    found: Sequence[Predictions],
    truth: CSR,
    *,
    places: int | None = None,
    threads: int | None = None,
) -> tuple[float, ...]:
    """P@1, P@3 and P@5 of documents merged as :func:`learn_weights` does for the other half.

    The precision of the documents that chose the weights looks better than it is.
    """
    options: dict[str, Any] = {"places": places, "threads": threads}
    even = np.arange(len(found[0])) % 2 == 0
    measured = []
    for rows, others in ((even, ~even), (~even, even)):
        learnt = learn_weights([_of(part, others) for part in found], truth[others], **options)
        merged = merge(
            [_of(part, rows) for part in found],
            k=max(MEASURED_AT),
            rule=learnt.rule,
            weights=learnt.weights,
            **options,
        )
        measured.append(precision_rows(merged, truth[rows]))
    return tuple(np.concatenate(measured).mean(axis=0).tolist())


def _of(part: Predictions, rows: npt.NDArray[np.bool_]) -> Predictions:
    """The predictions of some documents."""
    return Predictions(
        part.columns[rows], part.scores[rows], part.counts[rows], part.index, part.score_kind
    )


def _climb(value: Callable[[Sequence[float]], float], members: int) -> list[float]:
    """Weights that no change of a single one to another step improves."""
    weights = [1.0] * members
    reached = value(weights)
    for _ in range(MOST_ROUNDS):
        before = list(weights)
        for member in range(members):
            for step in STEPS:
                trial = [*weights[:member], step, *weights[member + 1 :]]
                if trial == weights or not any(trial):
                    continue
                now = value(trial)
                if now > reached + 1e-12:
                    weights, reached = trial, now
        if weights == before:
            break
    return weights


def precision_of(predictions: Predictions, truth: CSR) -> tuple[float, ...]:
    """P@1, P@3 and P@5, as :func:`learn_weights` measures them."""
    return _precision(predictions, _pairs(truth))


def _pairs(truth: CSR) -> npt.NDArray[np.int64]:
    """(document, label) pairs as sorted numbers."""
    return np.sort(entry_rows(truth) * truth.shape[1] + truth.indices)


def precision_rows(predictions: Predictions, truth: CSR) -> npt.NDArray[np.float64]:
    """P@1, P@3 and P@5 of each document."""
    hits = _hits(predictions, _pairs(truth))
    return np.stack([hits[:, :k].sum(axis=1) / k for k in MEASURED_AT], axis=1)


def _precision(predictions: Predictions, true: npt.NDArray[np.int64]) -> tuple[float, ...]:
    hits = _hits(predictions, true)
    return tuple(float(hits[:, :k].sum() / (k * max(1, len(hits)))) for k in MEASURED_AT)


def _hits(predictions: Predictions, true: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which of the first labels are right."""
    first = predictions.top(max(MEASURED_AT))
    rows = np.arange(len(first), dtype=np.int64)[:, None]
    right: npt.NDArray[np.bool_] = np.isin(rows * len(first.index) + first.columns, true)
    return right & (first.columns >= 0)
