"""What growing needs to know of each method: its rankers, and how they read documents."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from labelgrove.core.arrays import CsrParts, as_csr
from labelgrove.data.features import FeatureParts, Features
from labelgrove.errors import DataError, UnsupportedError
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.base import checked_inputs
from labelgrove.methods.inputs import document_parts
from labelgrove.ranking.beam import SearchParams, beam_per_level, sparse_only
from labelgrove.ranking.growing import Routed, route, with_labels
from labelgrove.ranking.negatives import nodes_to_mine
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import Tfidf


@dataclass(frozen=True)
class Read:
    """Documents as the rankers read them, and for each ranker the clusters that they are sent to.

    ``mined`` is how many of these clusters learn from a document.
    """

    features: Features
    routed: list[Routed]
    mined: int


@dataclass(frozen=True)
class View:
    """One model, as growing sees it. ``replaced`` turns grown rankers into new attributes."""

    rankers: list[Ranker]
    params: RankerParams
    leaf_size: int
    vectorizer: Tfidf | None
    read: Callable[[Any, int | None], Read]
    replaced: Callable[[list[Ranker]], dict[str, Any]]


def view_of(model: Any) -> View:
    """The view of a fitted model; UnsupportedError for methods that cannot grow."""
    views: dict[str, Callable[[Any], View]] = {
        "linear": _linear,
        "linear-vectors": _linear_vectors,
        "xrtransformer": _xrtransformer,
        "xtransformer": _xtransformer,
    }
    if model.method not in views:
        raise UnsupportedError(
            f"a {model.method} model cannot take new labels or documents: its output layer was "
            "learnt as a whole. Train it again with the new documents (a run folder keeps what did "
            "not change), or let a linear or xrtransformer model grow until then"
        )
    return views[model.method](model)


def _linear(model: Any) -> View:
    rankers: list[Ranker] = model.rankers_

    def read(documents: Any, threads: int | None) -> Read:
        parts = document_parts(
            documents,
            None,
            vectorizer=model.vectorizer_,
            terms=rankers[0].features,
            width=model.facts_.width,
            dense_norm=model.dense_norm,
            threads=threads,
        )
        return _routed(_features(parts), rankers, model.ranker, model.search, threads)

    return View(
        rankers,
        model.ranker,
        model.tree.max_leaf_size,
        model.vectorizer_,
        read,
        lambda grown: {"rankers_": grown},
    )


def _linear_vectors(model: Any) -> View:
    inner = _linear(model.linear_)

    def read(documents: Any, threads: int | None) -> Read:
        texts = _texts(model, documents)
        terms = None if model.vectorizer_ is None else model.vectorizer_.transform(texts)
        return inner.read(Features(terms, model._vectors_of(texts, threads=threads)), threads)

    def replaced(grown: list[Ranker]) -> dict[str, Any]:
        linear = copy.copy(model.linear_)
        linear.rankers_ = grown
        return {"linear_": linear}

    return View(
        inner.rankers, model.ranker, model.tree.max_leaf_size, model.vectorizer_, read, replaced
    )


def _xrtransformer(model: Any) -> View:
    ranker: Ranker = model.ranker_

    def read(documents: Any, threads: int | None) -> Read:
        features = model._features(_texts(model, documents), threads=threads)
        return _routed(features, [ranker], model.ranker, model.search, threads)

    def replaced(grown: list[Ranker]) -> dict[str, Any]:
        tree = grown[0].tree if model.tree_ == ranker.tree else _follow(model.tree_, grown[0].tree)
        return {"ranker_": grown[0], "tree_": tree}

    leaf_size = (model.refined if model.refine else model.tree).max_leaf_size
    return View([ranker], model.ranker, leaf_size, model.vectorizer_, read, replaced)


def _xtransformer(model: Any) -> View:
    from labelgrove.methods.neural import prediction_runner
    from labelgrove.methods.xtransformer.matching import match
    from labelgrove.methods.xtransformer.ranking import ClusterRanker, ranker_features, transformed
    from labelgrove.nn.encoders.tokens import tokenize

    ranker: Ranker = model.ranker_.ranker
    mined = model.ranker.mined_nodes
    mined = mined if isinstance(mined, int) else model.ranking.clusters_kept

    def read(documents: Any, threads: int | None) -> Read:
        texts = _texts(model, documents)
        encoder = model.network_.encoder
        tokens = tokenize(texts, encoder, encoder.max_tokens, threads=threads)
        most = max(mined, model.ranking.clusters_kept)
        matched = match(prediction_runner(model), tokens, most)
        terms = model.vectorizer_.transform(texts)
        features = ranker_features(terms, np.asarray(matched.vectors), model.ranking)
        scores = transformed(matched.margins, "sigmoid")
        return Read(features, [Routed(matched.clusters, scores)], mined)

    def replaced(grown: list[Ranker]) -> dict[str, Any]:
        return {"ranker_": ClusterRanker(grown[0], model.ranking, model.ranker_.learnt)}

    sizes = np.diff(ranker.tree.children(len(ranker.tree.parents) - 1))
    trained = max(1, round(float(np.mean(sizes))))
    return View([ranker], model.ranker, trained, model.vectorizer_, read, replaced)


def _texts(model: Any, documents: Any) -> Any:
    texts = checked_inputs(documents)
    if isinstance(texts, Features):
        raise DataError(f"{model.method} reads text and cannot learn from features alone")
    return texts


def _routed(
    features: Features,
    rankers: list[Ranker],
    params: RankerParams,
    search: SearchParams,
    threads: int | None,
) -> Read:
    """The clusters that each tree's own upper levels find, as mining for training has them."""
    widths = rankers[0].tree.widths
    beam = beam_per_level(search.beam, widths[:-1] or widths)[-1]
    terms = np.inf
    if features.sparse is not None and not features.width:
        terms = features.sparse.nnz / max(1, len(features))
    mined = nodes_to_mine(params.mined_nodes, terms, beam=beam)
    most = max(mined, beam)
    routed = [route(ranker, features, search, most=most, threads=threads) for ranker in rankers]
    return Read(features, routed, mined)


def _features(parts: CsrParts | FeatureParts) -> Features:
    """Documents for training out of documents for prediction."""
    both = sparse_only(parts) if isinstance(parts, CsrParts) else parts
    rows, columns = both.rows, both.sparse.cols
    terms = None
    if columns:
        arrays = (both.sparse.data, both.sparse.indices, both.sparse.indptr)
        terms = as_csr(sparse.csr_array(arrays, shape=(rows, columns)))
    return Features(terms, both.dense if both.dense.shape[1] else None)


def _follow(tree: LabelTree, grown: LabelTree) -> LabelTree:
    """A tree over the same labels, new ones where most of those lie whose cluster they share."""
    last, clusters = len(grown.parents) - 1, []
    children = grown.children(last)
    own = tree.parents[-1][tree.leaf_positions]
    for label in range(tree.labels, grown.labels):
        parent = grown.parents[last][grown.leaf_positions[label]]
        beside = grown.leaf_labels[children[parent] : children[parent + 1]]
        clusters.append(int(np.argmax(np.bincount(own[beside[beside < tree.labels]]))))
    return with_labels(tree, clusters)
