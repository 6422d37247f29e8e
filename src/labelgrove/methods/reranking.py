"""A linear ranker on [tf-idf ; text vector] that puts a network's own shortlist in order.

The network reads the beginning of a text and what its encoder makes of it; tf-idf sees every word.
CascadeXML's authors gained up to 2.7 points from both together. Each label learns from its own
documents and from those whose shortlist it is on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import sparse

from labelgrove.core.arrays import CSR, Float32, Int32, as_csr
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.core.topk import top_k
from labelgrove.data.features import Features
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.ranking.beam import OWN_MARGIN
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import NEGATIVE_SETTINGS, RankerParams, Start, refuse_idle
from labelgrove.text.tfidf import Tfidf

if TYPE_CHECKING:  # exported models rerank without torch
    from labelgrove.nn.network import Runner


@dataclass
class RerankParams(Params):
    """Whether and how a linear ranker reorders the shortlist of a network."""

    enabled: bool = param(False, help="train a ranker on tf-idf and the network's text vectors")
    shortlist: int = param(
        100, ge=1, help="best labels of the network that the ranker puts in order"
    )
    start: Literal["none", "initial", "centre"] = param(
        "none",
        help="what the network's output layer is to the ranker: nothing, where the solver begins "
        "(as published), or what the weights are drawn towards instead of 0",
    )
    normalise: bool = param(True, help="text vectors of unit length, as tf-idf rows are")
    share: float = param(
        0.75,
        ge=0,
        le=1,
        help="of the ranker's sigmoid in the final score; the rest is the network's probability",
    )


class Reranker:
    """The vectoriser and the ranker that put a network's shortlists in order."""

    def __init__(self, vectorizer: Tfidf, ranker: Ranker, params: RerankParams) -> None:
        self.vectorizer = vectorizer
        self.ranker = ranker
        self.params = params

    def best_labels(
        self,
        runner: Runner,
        texts: Any,
        tokens: Tokens,
        k: int,
        *,
        mask: LabelMask | None = None,
        threads: int | None = None,
    ) -> tuple[Int32, Float32]:
        """The k best labels of each document's shortlist, by both; columns and scores."""
        labels, params = self.ranker.tree.labels, self.params
        wanted = min(max(k, params.shortlist), labels)
        columns, chances, vectors = runner.read(tokens, wanted, vectors=True, mask=mask)
        features = _features(self.vectorizer.transform(texts), vectors, params)
        pattern = _pattern(columns, labels)
        scores = self.ranker.score(features, pattern, params=OWN_MARGIN, threads=threads)
        scores.data = 1 / (1 + np.exp(-scores.data))
        scores.data *= params.share
        scores.data += (1 - params.share) * _pattern(columns, labels, chances).data
        best = top_k(scores, k, threads=threads)
        return best.columns, best.scores

    def parts(self) -> dict[str, Part]:
        """For the model folder."""
        return {"rerank-tfidf": self.vectorizer.state(), "rerank-ranker": self.ranker.state()}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Part], params: RerankParams) -> Reranker | None:
        """From the model folder, if the model has one."""
        if "rerank-ranker" not in parts:
            return None
        ranker = Ranker.from_state(parts["rerank-ranker"])
        return cls(Tfidf.from_state(parts["rerank-tfidf"]), ranker, params)


def check_reranking(params: RerankParams, ranker: RankerParams) -> None:
    """Refuses settings that do not go together, before hours of training."""
    if params.enabled:
        why = "rerank.shortlist says which documents are negatives"
        refuse_idle(ranker, "ranker", NEGATIVE_SETTINGS, why)


def train_reranker(
    runner: Runner,
    tokens: Tokens,
    terms: CSR,
    labels: CSR,
    tree: LabelTree,
    params: RerankParams,
    ranker: RankerParams,
    *,
    seed: int,
    threads: int | None,
) -> Ranker:
    """The ranker for a trained network; ``terms`` are the tf-idf rows of the same documents."""
    columns, _, vectors = runner.read(tokens, min(params.shortlist, tree.labels), vectors=True)
    settings, start = ranker.get_params(), None
    if params.start != "none":
        settings["start"] = params.start
        weights, bias = runner.network.heads.output_layer()
        # Rows of unit length have lost what the layer was trained with; on average this is it.
        length = np.linalg.norm(vectors, axis=1).mean() if params.normalise else 1.0
        start = Start(weights * length, bias)
    features = _features(terms, vectors, params)
    del vectors  # features have a copy of their own, and these are large
    return train_ranker(
        features,
        labels,
        tree,
        RankerParams(**settings),
        shortlist=_pattern(columns, tree.labels),
        start=start,
        labels_only=True,
        seed=seed,
        threads=threads,
    )


def _pattern(columns: Int32, labels: int, values: Float32 | None = None) -> CSR:
    """Shortlists as a sparse matrix, with ones or with ``values`` at their places."""
    used = columns >= 0
    rows = np.nonzero(used)[0]
    data = np.ones(len(rows), np.float32) if values is None else values[used]
    matrix = sparse.coo_array((data, (rows, columns[used])), shape=(len(columns), labels))
    return as_csr(matrix.tocsr())


def _features(terms: CSR, vectors: Float32, params: RerankParams) -> Features:
    both = Features(sparse=terms, dense=vectors)
    return both.normalised() if params.normalise else both
