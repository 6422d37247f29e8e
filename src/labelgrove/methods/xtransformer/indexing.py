"""Semantic label indexing: labels become vectors, and vectors clusters for a matcher to learn.

What two labels have in common is read off their documents' words (pifa-tfidf), off what a
fine-tuned encoder makes of their documents (pifa-neural), or off their own names (text-emb).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from labelgrove.core.params import Params, param
from labelgrove.data.corpus import Strings
from labelgrove.data.features import Features
from labelgrove.errors import ConfigError
from labelgrove.labels.features import l2_normalised, pifa
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.nn.embed import embed
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.training.devices import choose_device


@dataclass
class IndexingParams(Params):
    """How labels are grouped into the clusters that a matcher learns."""

    vectors: Literal["pifa-tfidf", "pifa-neural", "text-emb"] = param(
        "pifa-tfidf",
        help="what labels are clustered by: the tf-idf of their documents, embeddings of their "
        "documents, or an embedding of their own text",
    )
    clusters: int | Literal["auto"] = param(
        "auto", ge=1, help="number of clusters, a power of two; auto: 50 to 100 labels in each"
    )
    embeddings: Literal["fine-tuned", "pretrained"] = param(
        "fine-tuned",
        help="embeddings of pifa-neural: of an encoder that was fine-tuned on pifa-tfidf clusters "
        "first (published), or of the encoder as it comes, which saves that training",
    )
    text_encoder: str | None = param(
        None, help="encoder of the labels' texts for text-emb; none = the method's own"
    )
    kmeans_iterations: int = param(20, ge=1, help="most rounds of k-means for one split")


def cluster_count(labels: int, wanted: int | Literal["auto"] = "auto") -> int:
    """Clusters for so many labels: what was asked for, or the number that the public code takes.

    >>> [cluster_count(n) for n in (3_956, 30_938, 13_330, 501_070)]
    [64, 512, 256, 8192]
    """
    if wanted == "auto":
        depth = int(math.log2(labels // 100 + 1)) + 1
        return 1 << min(depth, int(math.log2(labels)))
    if wanted & (wanted - 1):
        raise ConfigError(f"indexing.clusters: must be a power of two, got {wanted}")
    if wanted > labels:
        raise ConfigError(f"indexing.clusters: {wanted} clusters, but only {labels} labels")
    return wanted


def cluster_tree(
    vectors: Any, params: IndexingParams, *, seed: int = 0, threads: int | None = None
) -> LabelTree:
    """Clusters of nearly equal size over the labels' ``vectors``, as a tree of two levels."""
    labels = len(vectors)
    clusters = cluster_count(labels, params.clusters)
    shape = TreeParams(
        branching=max(2, clusters),
        max_leaf_size=-(-labels // clusters),
        kmeans_iterations=params.kmeans_iterations,
    )
    grown = build_tree(vectors, shape, seed=seed, threads=threads)
    if len(grown.parents) > 1:
        return grown
    return LabelTree([np.zeros(1, np.int32), grown.parents[0]], grown.leaf_labels)


def by_documents(features: Any, labels: Any, *, threads: int | None = None) -> Features:
    """Label vectors from the features of the labels' documents (PIFA, as in the public code)."""
    return pifa(features, labels, threads=threads)


def by_own_text(
    strings: Strings, encoder: EncoderParams, *, device: str, threads: int | None = None
) -> Features:
    """Label vectors out of the labels' own texts: the mean of the tokens' states."""
    params = EncoderParams(**encoder.get_params() | {"pooling": "mean"})
    reader = load_encoder(params)
    tokens = tokenize(strings, reader, reader.max_tokens, threads=threads)
    return l2_normalised(embed(reader, tokens, device=choose_device(device)))
