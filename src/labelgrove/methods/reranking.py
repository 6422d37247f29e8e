"""A linear ranker on [tf-idf ; text vector] that reorders shortlists.

The network reads the beginning of a text; tf-idf sees every word. CascadeXML's authors gained up to
2.7 points from both together. Each label learns from its own documents and from those that have it
on their shortlist. A network knows its training documents by heart, so its lists of these have few
labels that are hard to tell from the true ones, and its lists of new documents lack rare labels.
The linear method has other lists, and the ranker reads both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from labelgrove.core.arrays import CSR, Float32, Int32, as_csr, offsets
from labelgrove.core.late import expit, sparse
from labelgrove.core.params import AutoBool, Params, fixed, param
from labelgrove.core.part import Part
from labelgrove.core.topk import top_k
from labelgrove.data.corpus import Corpus
from labelgrove.data.features import Features
from labelgrove.data.inputs import Documents
from labelgrove.labels.masks import LabelMask
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.ranking.beam import OWN_MARGIN
from labelgrove.ranking.ranker import Ranker
from labelgrove.text.tfidf import TermReader, Tfidf

if TYPE_CHECKING:  # exported models rerank without torch
    from labelgrove.nn.network import Runner


@dataclass
class RerankParams(Params):
    """Whether and how a linear ranker reorders the shortlist of a network."""

    enabled: AutoBool = param(
        "auto", help="train a ranker on tf-idf and the network's text vectors; auto = yes"
    )
    shortlist: int = param(100, ge=1, help="best labels of the network that the ranker reorders")
    linear: bool = param(
        True,
        help="also train the linear method, whose best labels join the shortlist; published: false",
    )
    normalise: bool = param(True, help="scale text vectors to unit length, like tf-idf rows")
    share: float = param(
        0.75, ge=0, le=1, help="weight of the ranker in the score; the rest is the network's"
    )

    @property
    def reranks(self) -> bool:
        """Whether a ranker on tf-idf orders the shortlists."""
        return bool(fixed(self.enabled, True))

    @property
    def proposes(self) -> bool:
        """Whether the linear method adds to the shortlists."""
        return self.reranks and self.linear


@dataclass(eq=False)
class Reranker:
    """The ranker that reorders shortlists, and what reads its sparse features.

    ``linear`` is the linear method's, which reads these alone and proposes labels.
    """

    terms: TermReader
    ranker: Ranker
    params: RerankParams
    linear: Ranker | None = None

    def best_labels(
        self,
        runner: Runner,
        documents: Documents | Corpus,
        tokens: Tokens,
        k: int,
        *,
        mask: LabelMask | None = None,
    ) -> tuple[Int32, Float32]:
        """Columns and scores of the k best labels of each document's shortlists."""
        labels, params = self.ranker.tree.labels, self.params
        length = min(max(k, params.shortlist), labels)
        terms = self.terms.rows(documents)
        more = None if self.linear is None else proposed(self.linear, terms, length, mask)
        columns, probabilities, vectors = runner.read(
            tokens, length, vectors=True, mask=mask, more=more
        )
        features = reranker_features(terms, vectors, params)
        pattern = shortlist_matrix(columns, labels)
        scores = self.ranker.score(features, pattern, params=OWN_MARGIN)
        scores.data = params.share * expit(scores.data)
        scores.data += (1 - params.share) * shortlist_matrix(columns, labels, probabilities).data
        best = top_k(scores, k)
        return best.columns, best.scores

    def parts(self) -> dict[str, Part]:
        parts = {"rerank-ranker": self.ranker.state()}
        if self.terms.tfidf is not None:
            parts["rerank-tfidf"] = self.terms.tfidf.state()
        if self.linear is not None:
            parts["rerank-linear"] = self.linear.state()
        return parts

    @classmethod
    def from_parts(
        cls, parts: Mapping[str, Part], params: RerankParams, given: int = 0
    ) -> Reranker | None:
        """The reranker of a model folder, if there is one; it reads so many given columns."""
        if "rerank-ranker" not in parts:
            return None
        ranker = Ranker.from_state(parts["rerank-ranker"])
        stored = parts.get("rerank-tfidf")
        tfidf = None if stored is None else Tfidf.from_state(stored)
        stored = parts.get("rerank-linear")  # not there in models of earlier releases
        linear = None if stored is None else Ranker.from_state(stored)
        return cls(TermReader(tfidf, given), ranker, params, linear)


def proposed(linear: Ranker, terms: CSR, count: int, mask: LabelMask | None = None) -> Int32:
    """The linear method's best columns of each document; -1 where there are fewer."""
    return linear.search(terms, k=count, allow=mask).columns


def shortlist_matrix(columns: Int32, labels: int, values: Float32 | None = None) -> CSR:
    """Shortlists as a sparse matrix of ones or ``values``; what a row repeats counts once."""
    if values is None:
        columns = np.sort(columns, axis=1)
    else:
        order = np.argsort(columns, axis=1, kind="stable")
        columns = np.take_along_axis(columns, order, 1)
        values = np.take_along_axis(values, order, 1)
    used = columns >= 0
    used[:, 1:] &= columns[:, 1:] != columns[:, :-1]
    counts = used.sum(axis=1)
    data = np.ones(int(counts.sum()), np.float32) if values is None else values[used]
    parts = data, columns[used], offsets(counts)
    return as_csr(sparse.csr_array(parts, shape=(len(columns), labels)))


def reranker_features(terms: CSR, vectors: Float32, params: RerankParams) -> Features:
    """What the ranker reads of documents."""
    both = Features(sparse=terms, dense=vectors)
    return both.normalised() if params.normalise else both
