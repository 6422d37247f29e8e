"""The training documents of a label that are most similar to a text."""

from __future__ import annotations

import numpy as np

from labelgrove.core.arrays import CSR, as_csr
from labelgrove.data.corpus import Corpus
from labelgrove.data.records import words_of
from labelgrove.errors import DataError
from labelgrove.methods.explaining.explanation import Neighbour
from labelgrove.text.tfidf import Tfidf, TfidfParams

EXCERPT = 160  # characters
SHARED_TERMS = 5
MOST_CHARS = 1_000_000  # of the documents that a bounded search reads


def nearest_documents(
    text: str,
    corpus: Corpus,
    label: str,
    *,
    vectorizer: Tfidf | None = None,
    count: int = 3,
    bounded: bool = False,
) -> tuple[Neighbour, ...]:
    """The documents of ``corpus`` with the label that are most similar to the text, nearest first.

    Only documents of the label are read, so no index of the whole corpus is needed. Without a
    ``vectorizer``, tf-idf weights come from these documents themselves. A ``bounded`` search reads
    the first million characters of them.
    """
    if corpus.texts is None:
        raise DataError("nearest documents: the corpus has features, but no texts to show")
    column = corpus.index.get(label)
    if column is None:
        return ()
    positions = np.flatnonzero(corpus.labels.indices == column)
    documents = np.searchsorted(corpus.labels.indptr, positions, side="right") - 1
    texts = [corpus.texts[row] for row in documents]
    if bounded:
        ends = np.cumsum([len(words) for words in texts])
        texts = texts[: int(np.searchsorted(ends, MOST_CHARS)) + 1]
    if not texts or count < 1:
        return ()
    if vectorizer is None:
        vectorizer = Tfidf(TfidfParams(min_df=1)).fit([*texts, text])
    query = vectorizer.transform([text]).tocsr()
    rows = vectorizer.transform(texts).tocsr()
    lengths = np.sqrt(rows.multiply(rows).sum(axis=1)) * np.sqrt(query.multiply(query).sum())
    products = (rows @ query.T).toarray().ravel()
    cosines = np.divide(products, lengths, out=np.zeros(len(texts)), where=lengths > 0)
    best = [int(n) for n in np.argsort(-cosines, kind="stable")[:count] if cosines[n] > 0]
    hashed = vectorizer.params.n_buckets is not None
    return tuple(
        Neighbour(
            document=int(documents[number]),
            id=None if corpus.ids is None else corpus.ids[int(documents[number])],
            similarity=float(cosines[number]),
            excerpt=_excerpt(words_of(texts[number])),
            terms=() if hashed else _shared(as_csr(rows[[number]].multiply(query)), vectorizer),
        )
        for number in best
    )


def _shared(products: CSR, vectorizer: Tfidf) -> tuple[str, ...]:
    """The terms that two rows share, the ones with the largest product first."""
    best = np.argsort(-products.data, kind="stable")[:SHARED_TERMS]
    return tuple(vectorizer.term(int(column)) for column in products.indices[best])


def _excerpt(text: str) -> str:
    short = " ".join(text[: 2 * EXCERPT].split())
    return short if len(short) <= EXCERPT else short[: EXCERPT - 1] + "…"
