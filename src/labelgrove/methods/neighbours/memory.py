"""Training documents, what finds those that are nearest to a text, and how these vote for labels.

By tf-idf they are an inverted index, by text vectors a matrix that a text is compared with whole.

The score of a label is its share of the votes: the sum of similarity ** power over the neighbours
that have it, divided by the sum over all of them. All training documents together have one more
vote, which makes the list complete: labels that no neighbour has follow by their frequency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core import arrays as matrices
from labelgrove.core.aliases import Table
from labelgrove.core.arrays import CSR, CsrParts, Float32, Int32, csr_parts, offsets
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
    encoder_share: float = param(
        0.5, ge=0, le=1, help="with vectors = both: how much of a score comes from text vectors"
    )


class Ballots(NamedTuple):
    """Documents that vote, what their votes count, and by what the votes of a row are divided."""

    documents: Int32
    weights: Float64
    totals: Float64


def ballots(near: TopK, params: VotingParams) -> Ballots:
    """The votes of neighbours, from their cosines; one that resembles nothing has none."""
    cosines = near.scores.astype(np.float64)
    weights = np.where(cosines > 0, cosines**params.power, 0.0)
    return Ballots(near.columns, weights, weights.sum(axis=1) + params.prior**params.power)


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


def _same_rows(columns: Int32, values: Float64, shape: tuple[int, int]) -> CSR:
    """A matrix whose rows all have the same values, in these columns alone."""
    rows = shape[0]
    data, indices = np.tile(values[columns], rows), np.tile(columns, rows)
    return sparse.csr_array((data, indices, offsets(np.full(rows, len(columns)))), shape=shape)


TEXTS_AT_ONCE, DOCUMENTS_AT_ONCE = 1024, 1 << 14  # whose cosines are held at a time


class Queries(NamedTuple):
    """Texts as a memory compares them: by their terms, by unit vectors, or by both."""

    terms: CsrParts | None = None
    vectors: Float32 | None = None
    device: Any = None  # of torch, where vectors are compared; None: NumPy


@dataclass(frozen=True)
class TermMemory:
    """Documents of unit length by their terms."""

    postings: CsrParts  # terms x documents

    @classmethod
    def of(cls, rows: CSR) -> TermMemory:
        """From the features of the training documents, a row each."""
        unit: CSR = Features(sparse=rows).normalised().sparse
        return cls(csr_parts(matrices.as_csr(unit.T)))

    @property
    def columns(self) -> int:
        """Columns of the features."""
        return len(self.postings.indptr) - 1

    def nearest(self, queries: CsrParts, count: int) -> TopK:
        """The nearest documents and their cosines, which are at least 0."""
        best = nearest_rows(queries, self.postings, count)
        rows = np.repeat(np.arange(len(best.counts)), np.diff(queries.indptr))
        squares = np.square(queries.data, dtype=np.float64)
        lengths = np.sqrt(np.bincount(rows, squares, minlength=len(best.counts)))
        scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        cosines = np.clip(best.scores * scale[:, None], 0, 1)
        return best._replace(scores=cosines.astype(np.float32))


@dataclass(frozen=True)
class VectorMemory:
    """Documents by their text vectors: rows of unit length in half precision, perhaps mapped."""

    rows: npt.NDArray[np.float16]
    _copies: dict[Any, Any] = field(default_factory=dict, repr=False)  # the rows on GPUs

    def nearest(self, queries: Float32, count: int, *, device: Any = None) -> TopK:
        """The nearest documents and their cosines, of all documents; ties go by their number.

        A ``device`` of torch other than the CPU computes the products.
        """
        width = min(count, len(self.rows))
        blocks = []
        for first in range(0, max(1, len(queries)), TEXTS_AT_ONCE):
            products = self._products(queries[first : first + TEXTS_AT_ONCE], device)
            parts = [(start, top_k(block, width)) for start, block in products]
            # Earlier documents come first, so that equal ones keep their order.
            best = top_k(np.concatenate([part.scores for _, part in parts], axis=1), width)
            columns = np.concatenate([part.columns + start for start, part in parts], axis=1)
            columns = np.take_along_axis(columns, best.columns, axis=1)
            blocks.append(TopK(columns, np.clip(best.scores, 0, 1), best.counts))
        return TopK(*map(np.concatenate, zip(*blocks, strict=True)))

    def _products(self, texts: Float32, device: Any) -> Iterator[tuple[int, Float32]]:
        """Products with blocks of documents, each with the number of its first document."""
        on_gpu = device is not None and device.type != "cpu"
        rows: Any = self._on(device) if on_gpu else self.rows
        if on_gpu:
            import torch

            own: Any = torch.from_numpy(texts).to(device)
        for start in range(0, len(self.rows), DOCUMENTS_AT_ONCE):
            block = rows[start : start + DOCUMENTS_AT_ONCE]
            if on_gpu:
                yield start, (own @ block.float().T).cpu().numpy()
            else:
                yield start, texts @ block.astype(np.float32).T

    def _on(self, device: Any) -> Any:
        """The rows on a GPU, where they stay."""
        if device not in self._copies:
            import torch

            self._copies[device] = torch.from_numpy(np.array(self.rows)).to(device)
        return self._copies[device]

    def __getstate__(self) -> Table:
        return {"rows": self.rows, "_copies": {}}  # a copy makes its own on the GPU


@dataclass(frozen=True)
class Memory:
    """Documents by terms, by vectors or by both, and their labels."""

    labels: CSR  # ones
    terms: TermMemory | None = None
    vectors: VectorMemory | None = None

    @classmethod
    def of(
        cls, labels: CSR, *, terms: CSR | None, vectors: npt.NDArray[np.float16] | None = None
    ) -> Memory:
        """From the labels of the training documents, their features and their unit vectors."""
        return cls(
            matrices.with_values(labels, 1.0),
            None if terms is None else TermMemory.of(terms),
            None if vectors is None else VectorMemory(vectors),
        )

    def nearest(self, queries: Queries, count: int) -> list[TopK]:
        """The nearest documents: by terms, if there are any, then by vectors, if there are any."""
        near = []
        if self.terms is not None and queries.terms is not None:
            near.append(self.terms.nearest(queries.terms, count))
        if self.vectors is not None and queries.vectors is not None:
            near.append(self.vectors.nearest(queries.vectors, count, device=queries.device))
        return near

    def best_labels(
        self, queries: Queries, k: int, params: VotingParams, *, mask: LabelMask | None
    ) -> TopK:
        """The k allowed labels of each query with the largest shares of the votes."""
        near = self.nearest(queries, params.neighbours)
        cast = [ballots(one, params) for one in near]
        votes = cast[0]
        if len(cast) > 1:
            votes = joined(cast, [1 - params.encoder_share, params.encoder_share])
        return self._elected(votes, k, params, mask)

    @cached_property
    def frequencies(self) -> npt.NDArray[np.int64]:
        """Training documents of each label."""
        return np.bincount(self.labels.indices, minlength=self.labels.shape[1])

    def _elected(self, cast: Ballots, k: int, params: VotingParams, mask: LabelMask | None) -> TopK:
        """The k allowed labels of each row with the largest shares of the votes."""
        documents, weights, totals = cast
        factors = np.maximum(self.frequencies, 1.0) ** -params.rarity  # less for frequent labels
        # Above 0 for every label, so that every label has a rank.
        vote = params.prior**params.power
        prior = vote * (self.frequencies + 1) / (self.labels.shape[0] + 1) * factors
        # The most frequent labels complete every list; they are the best of those without votes.
        allowed = prior if mask is None else np.where(mask.allowed, prior, -np.inf)
        best = top_k(allowed[None], k)
        frequent = np.sort(best.columns[0, : best.counts[0]])  # so many labels has every list
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
            votes.data /= totals[block][matrices.entry_rows(votes)]
            blocks.append(top_k(votes, len(frequent)))
        return TopK(*map(np.concatenate, zip(*blocks, strict=True)))

    def _votes(self, documents: Int32, weights: Float64) -> CSR:
        """The sum of the weights of the documents that have a label, for all labels they have."""
        used = weights > 0
        choice = sparse.csr_array(
            (weights[used], documents[used], offsets(used.sum(axis=1))),
            shape=(len(weights), self.labels.shape[0]),
        )
        return choice @ self.labels

    def state(self) -> Part:
        arrays = matrices.csr_arrays(self.labels, "labels")
        if self.terms is not None:
            indptr, indices, data, documents = self.terms.postings
            index = matrices.narrow_csr(data, indices, indptr, (self.terms.columns, documents))
            arrays |= matrices.csr_arrays(index, "postings")
        if self.vectors is not None:
            arrays["vectors"] = self.vectors.rows
        return Part({}, arrays)

    @classmethod
    def from_state(cls, part: Part, *, terms: bool = True, vectors: bool = False) -> Memory:
        """From the model folder; the settings say what it has."""
        labels = matrices.csr_from_arrays(part.arrays, "labels")
        memory = cls(
            labels,
            TermMemory(
                csr_parts(matrices.csr_from_arrays(part.arrays, "postings"), name="postings")
            )
            if terms
            else None,
            VectorMemory(part.arrays["vectors"]) if vectors else None,
        )
        memory._check(labels.shape[0])
        return memory

    def _check(self, documents: int) -> None:
        if self.terms is not None and self.terms.postings.cols != documents:
            raise ValueError(f"{self.terms.postings.cols} documents, but labels of {documents}")
        if self.vectors is not None:
            rows = self.vectors.rows
            if rows.ndim != 2 or rows.dtype != np.float16 or len(rows) != documents:
                raise ValueError(f"vectors {rows.dtype} {rows.shape} for {documents} documents")

    def check_fits(self, labels: int, width: int | None = None) -> None:
        """Refuses what belongs to another label index or to an encoder of another width."""
        if self.labels.shape[1] != labels:
            raise ValueError(f"labels of the memory do not fit the {labels} of the index")
        if self.vectors is not None and self.vectors.rows.shape[1] != width:
            raise ValueError(f"vectors of {self.vectors.rows.shape[1]} for states of {width}")
