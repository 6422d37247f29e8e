"""A merge of several models' lists that is learnt from held-out documents.

The strength of a label is a sum over the members that propose it: ``weight * odds ** exponent``,
with the odds that the member's score stands for. Each member has a weight and an exponent for each
bin of label frequencies. A logistic curve turns the strength into a probability. All of them are
fitted together, so that the labels of the held-out documents become as likely as possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Array, Float64, Int64, MatrixLike, as_csr, entry_keys
from labelgrove.core.late import expit
from labelgrove.core.part import Part
from labelgrove.core.topk import merge_lists
from labelgrove.errors import DataError
from labelgrove.evaluation import merging
from labelgrove.evaluation.predictions import Predictions

# Labels have a weight and an exponent in common if their training documents are at least as many as
# one of these numbers and fewer than the next. Scores of rare labels mean something else.
BIN_STARTS = (1, 3, 10, 30, 100)
FIRST_RANKS = 15  # of each list are learnt from; hits are rare after them
LEAST, MOST = 1e-9, 1 - 1e-5  # scores outside, such as 0 and 1, have no finite odds
# How strongly a member's values are drawn to those it starts with, and a bin's to the member's.
RIDGE, BIN_RIDGE = 1.0, 10.0
MOST_STEPS, ENOUGH = 50, 1e-6  # of the search for values; a smaller gain of the loss ends it
# With more pairs of documents and labels, the search begins with one of so many.
ENOUGH_PAIRS, SAMPLE = 10_000, 8
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

    def __call__(self, parts: Sequence[Predictions], *, k: int) -> Predictions:
        """The k best labels of each document, with probabilities."""
        merging.check_lists(parts)
        if len(parts) != len(self.weights) or len(parts[0].index) != len(self.bins):
            raise DataError(
                f"this merge was learnt for {len(self.weights)} models and {len(self.bins):,} "
                f"labels, not for {len(parts)} and {len(parts[0].index):,}"
            )
        columns, values = merging.list_arrays(parts)
        for number, part in enumerate(parts):
            bins = self.bins[part.columns]
            powers = self.weights[number][bins] + self.exponents[number][bins] * log_odds(part)
            strengths = np.exp(np.clip(powers, -LARGEST_POWER, LARGEST_POWER))
            values[number, :, : part.k] = np.where(part.used, strengths, -np.inf)
        best = merge_lists(columns, values, k)  # their mean
        with np.errstate(divide="ignore"):
            strengths = np.log(len(parts) * np.maximum(best.scores.astype(np.float64), 0.0))
        merged = Predictions(*best, parts[0].index, "probability")
        return merged.with_scores(expit(self.sharpness * strengths))

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
        """The same merge with new labels at the end, and ``changed`` frequencies of old ones."""
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
    parts: Sequence[Predictions], truth: MatrixLike, frequencies: npt.ArrayLike
) -> LearntMerge:
    """The merge of these predictions of held-out documents, learnt from their true labels.

    ``frequencies`` are the training documents of each label. No model may have learnt from the
    held-out documents. A member that is better than the merge on documents that the merge has not
    seen (by the mean of P@1, P@3 and P@5, and by a standard error) is taken alone.
    """
    matrix, bins = _checked(parts, truth, frequencies)
    pairs = _pairs(parts, matrix, bins)
    merge = _fitted(pairs, bins)
    unseen = _cross_fitted(parts, pairs, merge, max(merging.MEASURED_AT))
    rows = merging.precision_rows(unseen, matrix)
    alone = [merging.precision_rows(part, matrix) for part in parts]
    best = int(np.argmax([values.mean() for values in alone]))
    gains = (rows - alone[best]).mean(axis=1)
    # On few documents, chance would often prefer one member, and a merge is rarely worse.
    if len(parts) == 1 or not gains.mean() > -gains.std() / np.sqrt(len(gains)):
        rows, common = alone[best], np.zeros_like(bins)
        one = _fitted(_pairs([parts[best]], matrix, common), common)
        exponents = np.zeros((len(parts), one.weights.shape[1]))
        weights = np.full_like(exponents, -LARGEST_POWER)  # next to nothing
        weights[best], exponents[best] = one.weights[0], one.exponents[0]
        shares = tuple(float(number == best) for number in range(len(parts)))
        merge = replace(one, weights=weights, exponents=exponents, shares=shares)
    return replace(merge, precision=tuple(rows.mean(axis=0).tolist()), unseen=rows)


def cross_fitted(
    parts: Sequence[Predictions], truth: MatrixLike, frequencies: npt.ArrayLike, *, k: int
) -> Predictions:
    """The k best labels, each fifth of the documents merged by what the other fifths teach."""
    matrix, bins = _checked(parts, truth, frequencies)
    pairs = _pairs(parts, matrix, bins)
    return _cross_fitted(parts, pairs, _fitted(pairs, bins), k)


def _cross_fitted(
    parts: Sequence[Predictions], pairs: _Pairs, merge: LearntMerge, k: int
) -> Predictions:
    """Each fold by a merge that never saw it: the search begins at the common one, and ends."""
    rows = np.arange(len(parts[0]))
    folds = [rows[rows % FOLDS == fold] for fold in range(FOLDS)]
    merged = [
        _fitted(pairs.of(pairs.documents % FOLDS != fold), merge.bins, near=merge)(
            [part.of_rows(own) for part in parts], k=k
        )
        for fold, own in enumerate(folds)
    ]
    return Predictions.concat(merged).of_rows(np.argsort(np.concatenate(folds)))


def _checked(
    parts: Sequence[Predictions], truth: MatrixLike, frequencies: npt.ArrayLike
) -> tuple[CSR, npt.NDArray[np.int8]]:
    """The truth as a matrix, and the bin of each label; refuses what does not fit."""
    merging.check_lists(parts)
    matrix, bins = as_csr(truth, name="truth"), frequency_bins(frequencies)
    if bins.shape != (len(parts[0].index),):
        raise DataError(
            f"frequencies: {bins.shape} numbers for {len(parts[0].index):,} labels; give the "
            "training documents of each label"
        )
    if matrix.shape != (len(parts[0]), len(bins)):
        raise DataError(
            f"the true labels are {matrix.shape}, the predictions {(len(parts[0]), len(bins))}: "
            "documents x labels"
        )
    return matrix, bins


class _Pairs(NamedTuple):
    """The (document, label) pairs that are learnt from, sorted by the label's bin."""

    documents: Int64
    bins: Int64
    targets: Float64  # 1 if the label is right
    proposed: Float64  # members x pairs: 1 if the member's list has the label
    odds: Float64  # members x pairs: logarithms, 0 if the list does not have the label

    def of(self, chosen: Array | slice) -> _Pairs:
        return _Pairs._make(values[..., chosen] for values in self)

    def scaled(self) -> tuple[_Pairs, Float64, Float64]:
        """With mean 0 and deviation 1 of each member's odds; the means and deviations before."""
        counts = np.maximum(self.proposed.sum(axis=1), 1.0)
        middles = self.odds.sum(axis=1) / counts
        odds = (self.odds - middles[:, None]) * self.proposed
        scales = np.sqrt((odds**2).sum(axis=1) / counts)
        scales[scales == 0] = 1.0
        return self._replace(odds=odds / scales[:, None]), middles, scales


def _pairs(parts: Sequence[Predictions], truth: CSR, bins: npt.NDArray[np.int8]) -> _Pairs:
    """Labels that any member has among its first ones."""
    labels, keys = len(bins), []
    for part in parts:
        documents = np.arange(len(part), dtype=np.int64)[:, None]
        keys.append(np.where(part.used, documents * labels + part.columns, -1))
    first = np.sort(np.concatenate([key[:, :FIRST_RANKS].ravel() for key in keys]))
    pairs = first[(first >= 0) & (np.diff(first, prepend=-1) > 0)]
    proposed, odds = np.zeros((2, len(keys), len(pairs)))
    for number, (part, key) in enumerate(zip(parts, keys, strict=True)):
        # A label that one list has among its first ones may be anywhere in the others.
        place = np.minimum(np.searchsorted(pairs, key), len(pairs) - 1)
        chosen = pairs[place] == key if len(pairs) else np.zeros(key.shape, bool)
        proposed[number, place[chosen]] = 1.0
        odds[number, place[chosen]] = log_odds(part)[chosen]
    targets = np.isin(pairs, entry_keys(truth)).astype(np.float64)
    own = bins[pairs % max(1, labels)].astype(np.int64)
    order = np.argsort(own, kind="stable")
    return _Pairs(pairs // max(1, labels), own, targets, proposed, odds).of(order)


def _fitted(
    pairs: _Pairs, bins: npt.NDArray[np.int8], *, near: LearntMerge | None = None
) -> LearntMerge:
    """The most likely merge, whatever its precision; it is looked for ``near`` another."""
    members, width = len(pairs.odds), len(BIN_STARTS) + 1
    scaled, middles, scales = pairs.scaled()
    first = None
    if near is not None:
        weights = near.weights + near.exponents * middles[:, None]
        exponents = near.exponents * scales[:, None]
        first = np.concatenate([weights, exponents, [np.log(near.sharpness)]], axis=None)
    values = _most_likely(scaled, members, width, first)
    size = members * width
    exponents = values[size:-1].reshape(members, width) / scales[:, None]
    weights = values[:size].reshape(members, width) - exponents * middles[:, None]
    return LearntMerge(weights, exponents, float(np.exp(values[-1])), bins, _shares(values, scaled))


def _most_likely(pairs: _Pairs, members: int, width: int, first: Float64 | None = None) -> Float64:
    """For each member and bin a weight, then an exponent; in the end the sharpness' logarithm.

    Steps are those of Levenberg and Marquardt, a tenth as many as without the curvature of the few
    values. Without values to begin with, most of them are made on a sample.
    """
    size = members * width
    start = np.concatenate([np.zeros(size), np.ones(size), [0.0]])
    # Exponents above 0 keep the order of a member's labels.
    low = np.concatenate([np.full(size, -np.inf), np.full(size, 0.01), [-3.0]])
    high = np.concatenate([np.full(size, np.inf), np.full(size, 5.0), [3.0]])
    values, damping, penalty = start, 1e-3, _penalty(members, width)
    if first is not None:
        values = np.clip(first, low, high)
    elif len(pairs.targets) > ENOUGH_PAIRS:
        values = _most_likely(pairs.of(slice(None, None, SAMPLE)), members, width)
    read = _reading(values, pairs)
    loss = _loss(read, values - start, pairs, penalty)
    gradient, curvature = _slopes(read, values - start, pairs, penalty)
    for _ in range(MOST_STEPS):
        stuck = ((values <= low) & (gradient > 0)) | ((values >= high) & (gradient < 0))
        free = np.flatnonzero(~stuck)
        damped = curvature + damping * np.diag(np.diag(curvature))
        step = np.zeros_like(values)
        step[free] = np.linalg.solve(damped[np.ix_(free, free)], -gradient[free])
        tried = np.clip(values + step, low, high)
        new_read = _reading(tried, pairs)
        new_loss = _loss(new_read, tried - start, pairs, penalty)
        if new_loss < loss:
            gain, loss, values, read = loss - new_loss, new_loss, tried, new_read
            damping = max(damping / 10, 1e-9)
            if gain < ENOUGH * loss:
                break
            gradient, curvature = _slopes(read, values - start, pairs, penalty)
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


def _reading(values: Float64, pairs: _Pairs) -> tuple[Float64, Float64]:
    """Each member's share of each pair's strength, and the margins."""
    table = values[:-1].reshape(2, len(pairs.odds), -1)
    counts = np.bincount(pairs.bins, minlength=table.shape[2])
    weights, exponents = np.repeat(table, counts, axis=2)  # pairs are sorted by bins
    powers = weights + exponents * pairs.odds
    # A step may go far too far.
    brought = pairs.proposed * np.exp(np.clip(powers, -LARGEST_POWER, LARGEST_POWER))
    sums = brought.sum(axis=0)
    brought /= sums
    return brought, np.exp(values[-1]) * np.log(sums)


def _loss(read: tuple[Float64, Float64], away: Float64, pairs: _Pairs, penalty: Float64) -> float:
    """Minus the logarithm of the likelihood, with a penalty of values ``away`` from the start."""
    _, margins = read
    unlikely = np.log1p(np.exp(-np.abs(margins))) + np.maximum(margins, 0)
    return float((unlikely - pairs.targets * margins).sum() + 0.5 * away @ penalty @ away)


def _slopes(
    read: tuple[Float64, Float64], away: Float64, pairs: _Pairs, penalty: Float64
) -> tuple[Float64, Float64]:
    """The gradient of the loss, and its curvature as far as margins are linear in the values.

    Products of long vectors are sums here: BLAS would start threads for each.
    """
    size, members = len(away) // 2, len(pairs.odds)
    width = size // members
    shares, margins = read
    likely = expit(margins)
    errors, spread = likely - pairs.targets, likely * (1 - likely)
    # How each margin changes with the values of its bin, and with the sharpness.
    changes = np.exp(away[-1]) * np.concatenate([shares, shares * pairs.odds])
    gradient, curvature = penalty @ away, penalty.copy()
    gradient[-1] += (errors * margins).sum()
    curvature[-1, -1] += (spread * margins**2).sum()
    limits = np.searchsorted(pairs.bins, np.arange(width + 1))
    for number, own in enumerate(map(slice, limits[:-1], limits[1:])):
        places = number + width * np.arange(2 * members)
        part = changes[:, own]
        weighted = part * spread[own]
        gradient[places] += np.einsum("ir,r->i", part, errors[own])
        curvature[np.ix_(places, places)] += np.einsum("ir,jr->ij", weighted, part)
        last = np.einsum("ir,r->i", weighted, margins[own])
        curvature[-1, places] += last
        curvature[places, -1] += last
    return gradient, curvature


def _shares(values: Float64, pairs: _Pairs) -> tuple[float, ...]:
    """How much each member brings to right labels, with the sum 1."""
    brought_by = (_reading(values, pairs)[0] * pairs.targets).sum(axis=1) + 1e-6
    return tuple((brought_by / brought_by.sum()).tolist())
