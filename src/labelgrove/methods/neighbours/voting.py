"""How the nearest training documents vote for labels.

The score of a label is its share of the votes: the sum of similarity ** power over the neighbours
that have it, divided by the sum over all of them. All training documents together have one more
vote, which makes the list complete: labels that no neighbour has follow by their frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Float32, Int32, entry_rows, offsets
from labelgrove.core.late import sparse
from labelgrove.core.params import Params, param
from labelgrove.core.topk import TopK, top_k
from labelgrove.labels.masks import LabelMask

Float64 = npt.NDArray[np.float64]
ENTRIES_AT_ONCE = 1 << 21  # scores of labels that are held at a time


@dataclass
class VotingParams(Params):
    """How the nearest training documents vote."""

    neighbours: int = param(50, ge=1, help="nearest training documents that vote")
    power: float = param(
        3.0, ge=0, le=16, help="a document's vote is similarity ** power; more = the nearest decide"
    )
    rarity: float = param(
        0.0,
        ge=0,
        le=1,
        help="votes for a label are divided by (its training documents) ** rarity; 0.1 finds more "
        "rare labels",
    )
    prior: float = param(
        0.1,
        ge=0.001,
        le=1,
        help="the frequencies of labels vote like one document of this similarity",
    )
    encoder_share: float = param(
        0.5, ge=0, le=1, help="with vectors = both: how much of a score comes from text vectors"
    )


class Ballots(NamedTuple):
    """Documents that vote, what their votes count, and by what the votes of a row are divided."""

    documents: Int32
    weights: Float64
    totals: Float64


class Support(NamedTuple):
    """Where the score of a label comes from: the frequencies, and documents that have it.

    A document adds so much to the score for each unit of its cosine.
    """

    prior: float
    documents: Int32
    per_cosine: Float64


def ballots(near: TopK, params: VotingParams) -> Ballots:
    """The votes of neighbours, from their cosines; one that resembles nothing has none."""
    weights = vote_weights(near.scores, params)
    return Ballots(near.columns, weights, weights.sum(axis=1) + params.prior**params.power)


def vote_weights(cosines: Float32, params: VotingParams) -> Float64:
    """What the vote of a document counts; one that shares no term with the text has none."""
    return np.where(cosines > 0, cosines.astype(np.float64) ** params.power, 0.0)


def joined(several: Sequence[Ballots], shares: Sequence[float]) -> Ballots:
    """Ballots whose scores are the means of those of several, with a share for each."""
    # A score is (votes + frequencies) / total. The frequencies are the same in all, so votes are
    # scaled until one total fits.
    parts = [share / own.totals for own, share in zip(several, shares, strict=True)]
    totals = 1 / np.sum(parts, axis=0)
    scaled = [
        own.weights * (part * totals)[:, None] for own, part in zip(several, parts, strict=True)
    ]
    documents = np.concatenate([own.documents for own in several], axis=1)
    return Ballots(documents, np.concatenate(scaled, axis=1), totals)


@dataclass(frozen=True)
class Voters:
    """The training documents with their labels, ones."""

    labels: CSR

    @cached_property
    def frequencies(self) -> npt.NDArray[np.int64]:
        """Training documents of each label."""
        return np.bincount(self.labels.indices, minlength=self.labels.shape[1])

    def best_labels(
        self, cast: Ballots, k: int, params: VotingParams, *, mask: LabelMask | None
    ) -> TopK:
        """The k allowed labels of each row with the largest shares of the votes."""
        documents, weights, totals = cast
        factors = self._label_factors(params)
        prior = self._prior(params) * factors
        # The most frequent labels complete every list; they are the best of those without votes.
        allowed = prior if mask is None else np.where(mask.allowed, prior, -np.inf)
        best = top_k(allowed[None], k)
        frequent = np.sort(best.columns[0, : best.counts[0]])
        added = prior.copy()
        added[frequent] = 0  # they are added to every row, with votes or without
        step = max(1, ENTRIES_AT_ONCE // (len(frequent) + weights.shape[1]))
        blocks = []
        for first in range(0, max(1, len(weights)), step):
            block = slice(first, first + step)
            votes = self._votes(documents[block], weights[block])
            votes.data *= factors[votes.indices]
            if mask is not None:
                votes.data[~mask.allowed[votes.indices]] = -np.inf  # never taken
            votes.data += added[votes.indices]
            votes = votes + _same_rows(frequent, prior, votes.shape)
            votes.data /= totals[block][entry_rows(votes)]
            blocks.append(top_k(votes, k))
        width = len(frequent)  # so many labels has every list
        return TopK(
            np.concatenate([block.columns[:, :width] for block in blocks]),
            np.concatenate([block.scores[:, :width] for block in blocks]),
            np.concatenate([block.counts for block in blocks]),
        )

    def support(self, near: TopK, column: int, params: VotingParams) -> Support:
        """Where the score of a label comes from, for the neighbours of one text."""
        documents, weights, totals = ballots(near, params)
        scale = self._label_factors(params)[column] / totals[0]
        has = self.labels[documents[0]][:, [column]].toarray()[:, 0] > 0
        voters = has & (weights[0] > 0)
        per_cosine = scale * weights[0, voters] / near.scores[0, voters]
        return Support(float(scale * self._prior(params)[column]), documents[0, voters], per_cosine)

    def _votes(self, documents: Int32, weights: Float64) -> CSR:
        """The sum of the weights of the documents that have a label, for all labels they have."""
        used = weights > 0
        choice = sparse.csr_array(
            (weights[used], documents[used], offsets(used.sum(axis=1))),
            shape=(len(weights), self.labels.shape[0]),
        )
        return choice @ self.labels

    def _label_factors(self, params: VotingParams) -> Float64:
        """By what the votes for each label are multiplied: less for frequent labels."""
        return np.maximum(self.frequencies, 1.0) ** -params.rarity

    def _prior(self, params: VotingParams) -> Float64:
        """The vote of the frequencies; above 0 for every label, so that every label has a rank."""
        vote = params.prior**params.power
        shares: Float64 = vote * (self.frequencies + 1) / (self.labels.shape[0] + 1)
        return shares


def _same_rows(columns: Int32, values: Float64, shape: tuple[int, int]) -> CSR:
    """A matrix whose rows all have the same values, in these columns alone."""
    rows = shape[0]
    data, indices = np.tile(values[columns], rows), np.tile(columns, rows)
    return sparse.csr_array((data, indices, offsets(np.full(rows, len(columns)))), shape=shape)
