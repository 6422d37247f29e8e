"""The sparse rows of documents: tf-idf of their texts, a matrix that came with them, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labelgrove.core.arrays import CSR, as_csr, csr_parts
from labelgrove.core.late import sparse
from labelgrove.data.corpus import Corpus
from labelgrove.data.documents import Documents
from labelgrove.data.features import Features
from labelgrove.errors import DataError
from labelgrove.text.tfidf import Tfidf

HOW_TO_GIVE = (
    "give it with the texts: Documents(texts, matrix) or a Corpus in Python; --features FILE, or a "
    "folder that has it, on the command line"
)


@dataclass(frozen=True)
class TermReader:
    """What a ranker reads of documents: columns of tf-idf, then ``given`` columns of a matrix.

    Given rows are scaled to unit length, as the published features are, and so are both kinds
    together. Without any column there is nothing to read, and rows are empty.
    """

    tfidf: Tfidf | None = None
    given: int = 0

    def rows(self, documents: Documents | Corpus) -> CSR:
        """The documents' sparse rows; raises DataError if a matrix is missing or another one."""
        own = None
        if self.tfidf is not None:
            assert documents.texts is not None
            own = self.tfidf.transform(documents.texts)
        if not self.given:
            return self._empty(len(documents)) if own is None else own
        matrix = None if documents.features is None else documents.features.sparse
        return self.joined(own, checked_matrix(matrix, self.given))

    def of_texts(self, texts: Sequence[str]) -> CSR:
        """Rows of texts that no matrix knows, such as labels' names: given columns are zero."""
        if self.tfidf is None:
            return self._empty(len(texts))
        own = self.tfidf.transform(texts)
        if not self.given:
            return own
        return as_csr(sparse.hstack([own, self._empty(len(texts))], format="csr"))

    def _empty(self, count: int) -> CSR:
        return as_csr(sparse.csr_array((count, self.given), dtype="float32"))

    @staticmethod
    def joined(own: CSR | None, given: CSR) -> CSR:
        """Both side by side, or the given rows alone, scaled to unit length."""
        unit = Features(sparse=given).normalised().sparse
        if own is None:
            return unit
        return Features(sparse=sparse.hstack([own, unit], format="csr")).normalised().sparse


def checked_matrix(matrix: CSR | None, columns: int) -> CSR:
    """A matrix with so many columns and finite values."""
    if matrix is None:
        raise DataError(
            f"this model reads a matrix of {columns:,} columns that comes with the texts, and "
            f"these documents have none; {HOW_TO_GIVE}"
        )
    if matrix.shape[1] != columns:
        raise DataError(
            f"this model reads a matrix of {columns:,} columns that comes with the texts, and that "
            f"of these documents has {matrix.shape[1]:,}; give the one made as for training"
        )
    csr_parts(matrix, name="the matrix that came with the texts")
    return matrix
