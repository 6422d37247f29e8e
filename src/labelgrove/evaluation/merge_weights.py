"""A merge of several models' lists that is learnt from held-out documents.

The strength of a label is a sum over the members that propose it: ``weight * odds ** exponent``,
with the odds that the member's score stands for. Each member has a weight and an exponent for each
bin of label frequencies. A logistic curve turns the strength into a probability. All of them are
fitted together, so that the labels of the held-out documents become as likely as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Int64, as_csr, offsets
from labelgrove.core.late import expit, sparse
from labelgrove.core.part import Part
from labelgrove.core.topk import merge_lists
from labelgrove.errors import DataError
from labelgrove.evaluation.merging import (
    MEASURED_AT,
    check_lists,
    list_arrays,
    precision_rows,
    true_pairs,
)
from labelgrove.evaluation.predictions import Predictions

Float64 = npt.NDArray[np.float64]

# Labels have a weight and an exponent in common if their training documents are at least as many as
# one of these numbers and fewer than the next. Scores of rare labels mean something else.
BIN_STARTS = (1, 3, 10, 30, 100)
FIRST_RANKS = 15  # of each list are learnt from; hits are rare after them
LEAST, MOST = 1e-9, 1 - 1e-5  # scores outside, such as 0 and 1, have no finite odds
# How strongly a member's values are drawn to those it starts with, and a bin's to the member's.
RIDGE, BIN_RIDGE = 1.0, 10.0
MOST_STEPS, ENOUGH = 50, 1e-6  # of the search for values; a smaller gain of the loss ends it
FOLDS = 5  # of cross-fitting; with two, a merge of few documents looks worse than it is
LARGEST_POWER = 80.0  # of e, so that strengths are finite in single precision


@dataclass(frozen=True)
class LearntMerge:
    """Weights (as logarithms) and exponents, members x bins; call it with predictions to merge.

    ``bins`` has the bin of each label, ``shares`` how much each member brings to the strength of
    the right labels. A share of 0 means that the member is not needed. ``precision`` has P@1, P@3
    and P@5 of the merge on the held-out documents, each fifth merged by what the others taught;
    ``unseen`` has them for each document, and is not saved.

    >>> from labelgrove import LabelIndex
    >>> index, rows = LabelIndex("abc"), np.eye(3)[np.arange(30) % 3]
    >>> good = Predictions.from_scores(0.2 + 0.5 * rows, k=3, index=index)
    >>> bad = Predictions.from_scores(0.9 - 0.5 * rows, k=3, index=index)
    >>> merge = learn_merge([good, bad], rows, [10, 10, 10])
    >>> merge([good, bad], k=1).names()[:3], merge.precision[0]
    ([['a'], ['b'], ['c']], 1.0)
    """

    weights: Float64
    exponents: Float64
    sharpness: float
    bins: npt.NDArray[np.int8]
    shares: tuple[float, ...] = ()
    precision: tuple[float, ...] = ()
    unseen: Float64 | None = None

    def __call__(self, found: Sequence[Predictions], *, k: int) -> Predictions:
        """The k best labels of each document, with probabilities."""
        check_lists(found)
        if len(found) != len(self.weights) or len(found[0].index) != len(self.bins):
            raise DataError(
                f"this merge was learnt for {len(self.weights)} models and {len(self.bins):,} "
                f"labels, not for {len(found)} and {len(found[0].index):,}"
            )
        columns, values = list_arrays(found)
        for number, part in enumerate(found):
            powers = self._powers(number, part)
            values[number, :, : part.k] = np.where(part.used, np.exp(powers), -np.inf)
        best = merge_lists(columns, values, k)  # their mean
        with np.errstate(divide="ignore"):
            strengths = np.log(len(found) * np.maximum(best.scores.astype(np.float64), 0.0))
        merged = Predictions(*best, found[0].index, "probability")
        return merged.with_scores(expit(self.sharpness * strengths))

    def _powers(self, member: int, part: Predictions) -> Float64:
        bins = self.bins[part.columns]
        powers = self.weights[member][bins] + self.exponents[member][bins] * log_odds(part)
        return np.asarray(np.clip(powers, -LARGEST_POWER, LARGEST_POWER))

    @property
    def needed(self) -> list[bool]:
        """Which members change the result."""
        return [share > 0 for share in self.shares]

    def of_needed(self) -> LearntMerge:
        """The same merge for the lists of the needed members alone."""
        chosen = np.array(self.needed)
        return replace(
            self,
            weights=self.weights[chosen],
            exponents=self.exponents[chosen],
            shares=tuple(share for share in self.shares if share > 0),
        )

    def grown(self, frequencies: npt.ArrayLike, changed: Int64) -> LearntMerge:
        """The same merge for more labels, the new ones at the end.

        ``changed`` are the columns of old labels whose frequency is another one now.
        """
        known, own = len(self.bins), frequency_bins(frequencies)
        bins = np.zeros_like(own)
        bins[:known] = self.bins
        if self.bins.any():  # otherwise one weight serves all labels
            bins[known:] = own[known:]
            bins[changed] = own[changed]
        return replace(self, bins=bins)

    def state(self) -> Part:
        """For the model folder."""
        names = ("sharpness", "shares", "precision")
        return Part(
            {name: getattr(self, name) for name in names},
            {"weights": self.weights, "exponents": self.exponents, "bins": self.bins},
        )

    @classmethod
    def from_state(cls, part: Part) -> LearntMerge:
        """From the model folder."""
        config, arrays = part.config, part.arrays
        merge = cls(
            np.asarray(arrays["weights"], np.float64),
            np.asarray(arrays["exponents"], np.float64),
            float(config["sharpness"]),
            np.asarray(arrays["bins"], np.int8),
            tuple(map(float, config["shares"])),
            tuple(map(float, config["precision"])),
        )
        shape = merge.weights.shape
        if merge.exponents.shape != shape or len(shape) != 2 or len(merge.shares) != shape[0]:
            raise ValueError("weights, exponents and shares of members do not fit each other")
        if len(merge.bins) and not 0 <= merge.bins.min() <= merge.bins.max() < shape[1]:
            raise ValueError("a label is in a bin that has no weights")
        return merge


def log_odds(part: Predictions) -> Float64:
    """Logarithms of the odds that scores stand for; margins are taken as such logarithms."""
    scores = part.scores.astype(np.float64)
    if part.score_kind == "margin":
        return np.where(part.used, scores, 0.0)
    units = np.clip(scores, LEAST, MOST)
    return np.asarray(np.log(units) - np.log1p(-units))


def frequency_bins(frequencies: npt.ArrayLike) -> npt.NDArray[np.int8]:
    """The bin of each label by its number of training documents.

    >>> frequency_bins([0, 2, 3, 50, 1000]).tolist()
    [0, 1, 2, 4, 5]
    """
    return np.asarray(np.digitize(np.asarray(frequencies), BIN_STARTS), np.int8)


def learn_merge(
    found: Sequence[Predictions], truth: Any, frequencies: npt.ArrayLike
) -> LearntMerge:
    """The merge of these predictions of held-out documents, learnt from their true labels.

    ``truth`` is a documents x labels matrix, as ``corpus.labels``. ``frequencies`` are the training
    documents of each label, as ``model.facts_.frequencies``. No model may have learnt from the
    held-out documents. If the best member is better than the merge on documents that the merge has
    not seen (by the mean of P@1, P@3 and P@5, and by a standard error), it is taken alone.
    """
    lists, bins = _checked(found, truth, frequencies)
    unseen = cross_fitted(found, truth, frequencies, k=max(MEASURED_AT))
    rows = precision_rows(unseen, lists.truth)
    alone = [precision_rows(part, lists.truth) for part in found]
    best = int(np.argmax([values.mean() for values in alone]))
    gains = (rows - alone[best]).mean(axis=1)
    # On few documents, chance would often prefer one member, and a merge is rarely worse.
    if len(found) > 1 and gains.mean() > -gains.std() / np.sqrt(len(gains)):
        precision = tuple(rows.mean(axis=0).tolist())
        return replace(_fitted(lists, bins), precision=precision, unseen=rows)
    one = _fitted(MemberLists([found[best]], lists.truth), np.zeros_like(bins))
    exponents = np.zeros((len(found), one.weights.shape[1]))
    weights = np.full_like(exponents, -LARGEST_POWER)  # next to nothing
    weights[best], exponents[best] = one.weights[0], one.exponents[0]
    shares = tuple(float(number == best) for number in range(len(found)))
    return replace(
        one,
        weights=weights,
        exponents=exponents,
        shares=shares,
        precision=tuple(alone[best].mean(axis=0).tolist()),
        unseen=alone[best],
    )


def cross_fitted(
    found: Sequence[Predictions], truth: Any, frequencies: npt.ArrayLike, *, k: int
) -> Predictions:
    """The k best labels, each fifth of the documents merged by what the other fifths teach.

    Measure a learnt merge by these: on documents that it learnt from, it looks better than it is.
    """
    lists, bins = _checked(found, truth, frequencies)
    rows = np.arange(len(found[0]))
    folds = [rows[rows % FOLDS == fold] for fold in range(FOLDS)]
    merged = [
        _fitted(lists.of(np.setdiff1d(rows, own)), bins)(lists.of(own).found, k=k) for own in folds
    ]
    return Predictions.concat(merged).of_rows(np.argsort(np.concatenate(folds)))


class MemberLists(NamedTuple):
    """Predictions of several models, and the true labels."""

    found: list[Predictions]
    truth: CSR

    def of(self, rows: npt.NDArray[np.int64]) -> MemberLists:
        return MemberLists([part.of_rows(rows) for part in self.found], self.truth[rows])


def _checked(
    found: Sequence[Predictions], truth: Any, frequencies: npt.ArrayLike
) -> tuple[MemberLists, npt.NDArray[np.int8]]:
    """The lists with their truth, and the bin of each label; refuses what does not fit."""
    check_lists(found)
    matrix, bins = as_csr(truth, name="truth"), frequency_bins(frequencies)
    if bins.shape != (len(found[0].index),):
        raise DataError(
            f"frequencies: {bins.shape} numbers for {len(found[0].index):,} labels; give the "
            "training documents of each label"
        )
    if matrix.shape != (len(found[0]), len(bins)):
        raise DataError(
            f"the true labels are {matrix.shape}, the predictions {(len(found[0]), len(bins))}: "
            "documents x labels"
        )
    return MemberLists(list(found), matrix), bins


class _Entries(NamedTuple):
    """The entries that are learnt from, sorted by document and label."""

    places: npt.NDArray[np.int64]  # in targets
    kinds: npt.NDArray[np.int64]  # member * bins + bin
    odds: Float64  # logarithms, with mean 0 and deviation 1 for each member
    targets: Float64  # of each (document, label) that any list has: 1 if it is right


def _fitted(lists: MemberLists, bins: npt.NDArray[np.int8]) -> LearntMerge:
    """The most likely merge, whatever its precision."""
    members, width = len(lists.found), len(BIN_STARTS) + 1
    entries, middles, scales = _entries(lists, bins, width)
    values = _most_likely(entries, members, width)
    size = members * width
    exponents = values[size:-1].reshape(members, width) / scales[:, None]
    weights = values[:size].reshape(members, width) - exponents * middles[:, None]
    return LearntMerge(
        weights, exponents, float(np.exp(values[-1])), bins, _shares(values, entries, members)
    )


def _most_likely(entries: _Entries, members: int, width: int) -> Float64:
    """For each member and bin a weight, then an exponent; in the end the sharpness' logarithm.

    Steps are those of Levenberg and Marquardt: there are few values, so a step with the curvature
    of all of them is cheap, and a tenth as many are needed as without it.
    """
    size = members * width
    start = np.concatenate([np.zeros(size), np.ones(size), [0.0]])
    # Exponents above 0 keep the order of a member's labels.
    low = np.concatenate([np.full(size, -np.inf), np.full(size, 0.01), [-3.0]])
    high = np.concatenate([np.full(size, np.inf), np.full(size, 5.0), [3.0]])
    values, damping, penalty = start, 1e-3, _penalty(members, width)
    loss = _loss(values, entries, start, penalty)
    for _ in range(MOST_STEPS):
        gradient, curvature = _slopes(values, entries, start, penalty)
        stuck = ((values <= low) & (gradient > 0)) | ((values >= high) & (gradient < 0))
        free = np.flatnonzero(~stuck)
        damped = curvature + damping * np.diag(np.diag(curvature))
        step = np.zeros_like(values)
        step[free] = np.linalg.solve(damped[np.ix_(free, free)], -gradient[free])
        tried = np.clip(values + step, low, high)
        new_loss = _loss(tried, entries, start, penalty)
        if new_loss < loss:
            gain, loss, values = loss - new_loss, new_loss, tried
            damping = max(damping / 10, 1e-9)
            if gain < ENOUGH * loss:
                break
        elif damping > 1e6:
            break
        else:
            damping *= 10
    return values


def _penalty(members: int, width: int) -> Float64:
    """What draws a member's values to the start, by their mean over bins, and bins to that mean."""
    common = np.full((width, width), 1 / width)
    block = BIN_RIDGE * (np.eye(width) - common) + RIDGE / width * common
    penalty = np.diag(np.full(2 * members * width + 1, RIDGE))
    penalty[:-1, :-1] = np.kron(np.eye(2 * members), block)
    return penalty


def _entries(
    lists: MemberLists, bins: npt.NDArray[np.int8], width: int
) -> tuple[_Entries, Float64, Float64]:
    """The entries that are learnt from; mean and deviation of each member's odds."""
    labels, keys = len(bins), []
    for part in lists.found:
        documents = np.arange(len(part), dtype=np.int64)[:, None]
        keys.append(np.where(part.used, documents * labels + part.columns, -1))
    first = np.concatenate([key[:, :FIRST_RANKS].ravel() for key in keys])
    pairs = np.unique(first[first >= 0])
    odds, kinds, places = [], [], []
    middles, scales = np.zeros(len(keys)), np.ones(len(keys))
    for number, (part, key) in enumerate(zip(lists.found, keys, strict=True)):
        # A label that one list has among its first ones may be anywhere in the others.
        chosen = np.isin(key, pairs)
        own = log_odds(part)[chosen]
        if len(own):
            middles[number], scales[number] = own.mean(), own.std() or 1.0
        odds.append((own - middles[number]) / scales[number])
        kinds.append(number * width + bins[part.columns[chosen]].astype(np.int64))
        places.append(np.searchsorted(pairs, key[chosen]))
    targets = np.isin(pairs, true_pairs(lists.truth)).astype(np.float64)
    place = np.concatenate(places)
    order = np.argsort(place, kind="stable")
    entries = _Entries(
        place[order], np.concatenate(kinds)[order], np.concatenate(odds)[order], targets
    )
    return entries, middles, scales


def _strengths(values: Float64, entries: _Entries) -> tuple[Float64, Float64]:
    """What each entry brings, and the sum for each label of a document."""
    weights, exponents = np.split(values[:-1], 2)
    powers = weights[entries.kinds] + exponents[entries.kinds] * entries.odds
    brought = np.exp(np.clip(powers, -LARGEST_POWER, LARGEST_POWER))  # a step may go far too far
    sums = np.bincount(entries.places, brought, minlength=len(entries.targets))
    return brought, np.asarray(sums, np.float64)


def _loss(values: Float64, entries: _Entries, start: Float64, penalty: Float64) -> float:
    """Minus the logarithm of the likelihood, with a penalty."""
    _, sums = _strengths(values, entries)
    margins = np.exp(values[-1]) * np.log(sums)
    away = values - start
    likely = np.logaddexp(0.0, margins) - entries.targets * margins
    return float(likely.sum() + 0.5 * away @ penalty @ away)


def _slopes(
    values: Float64, entries: _Entries, start: Float64, penalty: Float64
) -> tuple[Float64, Float64]:
    """The gradient of the loss, and its curvature as far as margins are linear in the values.

    Products of long vectors are sums here: BLAS would start threads for each.
    """
    size = len(values) // 2
    brought, sums = _strengths(values, entries)
    sharpness = np.exp(values[-1])
    margins = sharpness * np.log(sums)
    likely = expit(margins)
    # How each margin changes with the values: a sparse matrix, and the column of the sharpness.
    own = sharpness * brought / sums[entries.places]
    changes = sparse.csr_array(
        (
            np.stack([own, own * entries.odds], axis=1).ravel(),
            np.stack([entries.kinds, size + entries.kinds], axis=1).ravel(),
            2 * offsets(np.bincount(entries.places, minlength=len(sums))),
        ),
        shape=(len(sums), 2 * size),
    )
    errors, spread = likely - entries.targets, likely * (1 - likely)
    gradient = np.append(changes.T @ errors, (errors * margins).sum()) + penalty @ (values - start)
    curvature = penalty.copy()
    curvature[:-1, :-1] += (changes.T @ changes.multiply(spread[:, None])).toarray()
    last = changes.T @ (spread * margins)
    curvature[-1, :-1] += last
    curvature[:-1, -1] += last
    curvature[-1, -1] += (spread * margins**2).sum()
    return gradient, curvature


def _shares(values: Float64, entries: _Entries, members: int) -> tuple[float, ...]:
    """How much each member brings to right labels, with the sum 1."""
    brought, sums = _strengths(values, entries)
    shares = brought / sums[entries.places] * entries.targets[entries.places]
    members_of = entries.kinds // (len(values) // 2 // members)
    brought_by = np.bincount(members_of, shares, minlength=members) + 1e-6
    return tuple((brought_by / brought_by.sum()).tolist())
