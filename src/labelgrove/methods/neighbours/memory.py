"""Training documents and what finds those that are nearest to a text.

By tf-idf they are an inverted index, by text vectors a matrix that a text is compared with whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import (
    CSR,
    CsrParts,
    Float32,
    as_csr,
    csr_arrays,
    csr_from_arrays,
    csr_parts,
    narrow_csr,
    with_values,
)
from labelgrove.core.part import Part
from labelgrove.core.topk import TopK, nearest_rows, top_k
from labelgrove.data.features import Features
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.neighbours.voting import (
    Float64,
    Support,
    Voters,
    VotingParams,
    ballots,
    joined,
)

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
        return cls(csr_parts(as_csr(unit.T)))

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

    def contributions(self, query: CsrParts, support: Support) -> Float64:
        """What each term of a text adds to a score: a vote is divided as the cosine is."""
        length = np.sqrt(np.square(query.data, dtype=np.float64).sum())
        per_product = np.zeros(self.postings.cols)
        per_product[support.documents] = support.per_cosine / length
        contributions = np.zeros(len(query.indices))
        for place, (term, value) in enumerate(zip(query.indices, query.data, strict=True)):
            documents = slice(*self.postings.indptr[term : term + 2])
            shares = per_product[self.postings.indices[documents]]
            contributions[place] = value * (shares @ self.postings.data[documents])
        return contributions


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
            texts = queries[first : first + TEXTS_AT_ONCE]
            best = TopK(
                np.full((len(texts), width), -1, np.int32),
                np.full((len(texts), width), -np.inf, np.float32),
                np.zeros(len(texts), np.int32),
            )
            for start, products in self._products(texts, device):
                more = top_k(products, width)
                # Earlier documents come first, so that equal ones keep their order.
                scores = np.concatenate([best.scores, more.scores], axis=1)
                columns = np.concatenate([best.columns, more.columns + start], axis=1)
                best = top_k(scores, width)
                best = best._replace(columns=np.take_along_axis(columns, best.columns, axis=1))
            blocks.append(best)
        return TopK(
            np.concatenate([block.columns for block in blocks]),
            np.clip(np.concatenate([block.scores for block in blocks]), 0, 1),
            np.concatenate([block.counts for block in blocks]),
        )

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

    def direction(self, support: Support) -> Float64:
        """The product of a text's unit vector with it is what votes add to a score."""
        product: Float64 = support.per_cosine @ self.rows[support.documents].astype(np.float64)
        return product

    def __getstate__(self) -> dict[str, Any]:
        return {"rows": self.rows, "_copies": {}}  # a copy makes its own on the GPU

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


@dataclass(frozen=True)
class Memory:
    """Documents by terms, by vectors or by both, and their labels."""

    voters: Voters
    terms: TermMemory | None = None
    vectors: VectorMemory | None = None

    @classmethod
    def of(
        cls, labels: CSR, *, terms: CSR | None, vectors: npt.NDArray[np.float16] | None = None
    ) -> Memory:
        """From the labels of the training documents, their features and their unit vectors."""
        return cls(
            Voters(with_values(labels, 1.0)),
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
        return self.voters.best_labels(votes, k, params, mask=mask)

    def state(self) -> Part:
        """For the model folder."""
        arrays = csr_arrays(self.voters.labels, "labels")
        if self.terms is not None:
            indptr, indices, data, documents = self.terms.postings
            index = narrow_csr(data, indices, indptr, (self.terms.columns, documents))
            arrays |= csr_arrays(index, "postings")
        if self.vectors is not None:
            arrays["vectors"] = self.vectors.rows
        return Part({}, arrays)

    @classmethod
    def from_state(cls, part: Part, *, terms: bool = True, vectors: bool = False) -> Memory:
        """From the model folder; the settings say what it has."""
        labels = csr_from_arrays(part.arrays, "labels")
        memory = cls(
            Voters(labels),
            TermMemory(csr_parts(csr_from_arrays(part.arrays, "postings"), name="postings"))
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
        if self.voters.labels.shape[1] != labels:
            raise ValueError(f"labels of the memory do not fit the {labels} of the index")
        if self.vectors is not None and self.vectors.rows.shape[1] != width:
            raise ValueError(f"vectors of {self.vectors.rows.shape[1]} for states of {width}")
