"""Training documents as an inverted index, and the votes of those that are nearest to a text.

The score of a label is its share of the votes: the sum of similarity ** power over the neighbours
that have it, divided by the sum over all of them. All training documents together have one more
vote, which makes the list complete: labels that no neighbour has follow by their frequency.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import (
    CSR,
    CsrParts,
    Int32,
    as_csr,
    csr_arrays,
    csr_from_arrays,
    csr_parts,
    entry_rows,
    narrow_csr,
    offsets,
    with_values,
)
from labelgrove.core.late import sparse
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.core.topk import TopK, nearest_rows, top_k
from labelgrove.data.features import Features
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


class Evidence(NamedTuple):
    """The parts of a score: what the labels' frequencies give, and each term of the text."""

    prior: float
    terms: Float64


@dataclass(frozen=True)
class Memory:
    """Documents of unit length by their terms, and the labels of each document."""

    postings: CsrParts  # terms x documents
    labels: CSR  # documents x labels, ones

    @classmethod
    def of(cls, rows: CSR, labels: CSR) -> Memory:
        """From the features of the training documents, a row each, and their labels."""
        unit: CSR = Features(sparse=rows).normalised().sparse
        return cls(csr_parts(as_csr(unit.T)), with_values(labels, 1.0))

    @property
    def terms(self) -> int:
        """Columns of the features."""
        return len(self.postings.indptr) - 1

    @cached_property
    def frequencies(self) -> npt.NDArray[np.int64]:
        """Training documents of each label."""
        return np.bincount(self.labels.indices, minlength=self.labels.shape[1])

    def nearest(self, queries: CsrParts, count: int, *, threads: int | None) -> TopK:
        """The nearest documents and their cosines, which are at least 0."""
        best = nearest_rows(queries, self.postings, count, threads=threads)
        rows = np.repeat(np.arange(len(best.counts)), np.diff(queries.indptr))
        squares = np.square(queries.data, dtype=np.float64)
        lengths = np.sqrt(np.bincount(rows, squares, minlength=len(best.counts)))
        scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        cosines = np.clip(best.scores * scale[:, None], 0, 1)
        return best._replace(scores=cosines.astype(np.float32))

    def best_labels(
        self,
        queries: CsrParts,
        k: int,
        params: VotingParams,
        *,
        mask: LabelMask | None,
        threads: int | None,
    ) -> TopK:
        """The k allowed labels of each query with the largest shares of the votes."""
        near = self.nearest(queries, params.neighbours, threads=threads)
        weights = vote_weights(near.scores, params)
        factors = self._label_factors(params)
        prior = self._prior(params) * factors
        totals = weights.sum(axis=1) + params.prior**params.power
        # The most frequent labels complete every list; they are the best of those without votes.
        allowed = prior if mask is None else np.where(mask.allowed, prior, -np.inf)
        best = top_k(allowed[None], k, threads=1)
        frequent = np.sort(best.columns[0, : best.counts[0]])
        added = prior.copy()
        added[frequent] = 0  # they are added to every row, with votes or without
        step = max(1, ENTRIES_AT_ONCE // (len(frequent) + weights.shape[1]))
        blocks = []
        for first in range(0, max(1, len(weights)), step):
            block = slice(first, first + step)
            votes = self._votes(near.columns[block], weights[block])
            votes.data *= factors[votes.indices]
            if mask is not None:
                votes.data[~mask.allowed[votes.indices]] = -np.inf  # never taken
            votes.data += added[votes.indices]
            votes = votes + _same_rows(frequent, prior, votes.shape)
            votes.data /= totals[block][entry_rows(votes)]
            blocks.append(top_k(votes, k, threads=threads))
        width = len(frequent)  # so many labels has every list
        return TopK(
            np.concatenate([block.columns[:, :width] for block in blocks]),
            np.concatenate([block.scores[:, :width] for block in blocks]),
            np.concatenate([block.counts for block in blocks]),
        )

    def evidence(self, query: CsrParts, column: int, params: VotingParams) -> Evidence:
        """Where the score of a label for one query comes from."""
        near = self.nearest(query, params.neighbours, threads=1)
        weights = vote_weights(near.scores, params)[0]
        scale = self._label_factors(params)[column] / (weights.sum() + params.prior**params.power)
        has = self.labels[near.columns[0]][:, [column]].toarray()[:, 0] > 0
        voters = has & (weights > 0)
        # A vote is divided among the terms as the cosine is.
        per_product = np.zeros(self.postings.cols)
        lengths = near.scores[0, voters] * np.sqrt(np.square(query.data, dtype=np.float64).sum())
        per_product[near.columns[0, voters]] = scale * weights[voters] / lengths
        contributions = np.zeros(len(query.indices))
        for place, (term, value) in enumerate(zip(query.indices, query.data, strict=True)):
            documents = slice(*self.postings.indptr[term : term + 2])
            shares = per_product[self.postings.indices[documents]]
            contributions[place] = value * (shares @ self.postings.data[documents])
        return Evidence(float(scale * self._prior(params)[column]), contributions)

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

    def state(self) -> Part:
        """For the model folder."""
        indptr, indices, data, documents = self.postings
        index = narrow_csr(data, indices, indptr, (self.terms, documents))
        return Part({}, csr_arrays(index, "postings") | csr_arrays(self.labels, "labels"))

    @classmethod
    def from_state(cls, part: Part) -> Memory:
        """From the model folder."""
        postings = csr_parts(csr_from_arrays(part.arrays, "postings"), name="postings")
        labels = csr_from_arrays(part.arrays, "labels")
        if postings.cols != labels.shape[0]:
            raise ValueError(f"{postings.cols} documents, but labels of {labels.shape[0]}")
        return cls(postings, labels)


def vote_weights(cosines: npt.NDArray[np.float32], params: VotingParams) -> Float64:
    """What the vote of a document counts; one that shares no term with the text has none."""
    return np.where(cosines > 0, cosines.astype(np.float64) ** params.power, 0.0)


def _same_rows(columns: Int32, values: Float64, shape: tuple[int, int]) -> CSR:
    """A matrix whose rows all have the same values, in these columns alone."""
    rows = shape[0]
    data, indices = np.tile(values[columns], rows), np.tile(columns, rows)
    return sparse.csr_array((data, indices, offsets(np.full(rows, len(columns)))), shape=shape)
