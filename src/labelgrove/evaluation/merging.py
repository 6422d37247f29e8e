"""Several models' lists of labels as one: the rules of ensembles.

Every rule but round-robin turns a list's scores into values and takes their mean over the lists,
where a list without the label counts as 0. A list has the labels of one document by one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from labelgrove.core.arrays import CSR, Float32, Float64, Int32
from labelgrove.core.late import expit
from labelgrove.core.topk import Combine, merge_lists
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.metrics.ranking import judge
from labelgrove.evaluation.predictions import Predictions, ScoreKind

Rule = Literal["mean", "rank", "softmax", "sigmoid", "round-robin"]

MEASURED_AT = (1, 3, 5)  # the ranks at which members and merges are compared


def merge(
    parts: Sequence[Predictions],
    *,
    k: int,
    rule: Rule = "mean",
    weights: Sequence[float] | None = None,
    places: int | None = None,
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
    check_lists(parts)
    if rule not in get_args(Rule):
        raise ConfigError(f"rule: must be one of {', '.join(get_args(Rule))}, got {rule!r}")
    if rule == "round-robin" and weights is not None:
        raise ConfigError("weights: round-robin takes all members in turn and has no weights")
    kind = _kind_of_result(parts, rule)
    columns, scores = list_arrays(parts)
    width = scores.shape[2]
    values = _values(rule, scores, width if places is None else max(places, width))
    combine: Combine = "largest" if rule == "round-robin" else "mean"
    if rule == "mean" and kind == "margin":
        combine = "mean-or-last"
    best = merge_lists(columns, values, k, combine=combine, weights=weights)
    return Predictions(*best, parts[0].index, kind)


def list_arrays(parts: Sequence[Predictions]) -> tuple[Int32, Float32]:
    """Models x documents x ranks: columns and scores, -1 and -inf after the end of a list."""
    shape = (len(parts), len(parts[0]), max(part.k for part in parts))
    columns = np.full(shape, -1, np.int32)
    scores = np.full(shape, -np.inf, np.float32)
    for number, part in enumerate(parts):
        columns[number, :, : part.k] = np.where(part.used, part.columns, -1)
        scores[number, :, : part.k] = np.where(part.used, part.scores, -np.inf)
    return columns, scores


def _values(rule: Rule, scores: Float32, places: int) -> Float32:
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


def check_lists(parts: Sequence[Predictions]) -> None:
    """Refuses predictions of different documents or over different labels."""
    if not parts:
        raise DataError("nothing to merge: no predictions were given")
    for number, part in enumerate(parts[1:], 2):
        if part.index is not parts[0].index and part.index != parts[0].index:
            raise DataError(
                f"predictions 1 and {number} are over different labels "
                f"({len(parts[0].index):,} and {len(part.index):,}) and cannot be merged"
            )
        if len(part) != len(parts[0]):
            raise DataError(
                f"predictions 1 and {number} are of {len(parts[0]):,} and {len(part):,} documents"
            )


def _kind_of_result(parts: Sequence[Predictions], rule: Rule) -> ScoreKind:
    if rule in ("rank", "round-robin"):
        return "margin"
    kinds = {part.score_kind for part in parts}
    if rule == "mean":
        if len(kinds) == 1:
            return kinds.pop()
        if "margin" in kinds:
            raise ConfigError(
                "rule: the mean of margins and of scores between 0 and 1 means nothing; "
                "choose rank, softmax, sigmoid or round-robin, or let all members give one kind"
            )
    return "product"


def precision_of(predictions: Predictions, truth: CSR) -> tuple[float, ...]:
    """P@1, P@3 and P@5."""
    return tuple(precision_rows(predictions, truth).mean(axis=0).tolist())


def precision_rows(predictions: Predictions, truth: CSR) -> Float64:
    """P@1, P@3 and P@5 of each document."""
    hits = judge(predictions.top(max(MEASURED_AT)), truth).hits
    return np.stack([hits[:, :k].sum(axis=1) / k for k in MEASURED_AT], axis=1)
