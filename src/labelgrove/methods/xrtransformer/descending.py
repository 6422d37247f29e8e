"""Descending a label tree level by level with a model per level: XR-Transformer's shortlists.

Shortlists are sparse documents x nodes matrices; a stored value is the logarithm of a node's score,
so 0 is the best and small scores do not vanish. A score is the l3-hinge of the node's margin times
its parent's score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from scipy import sparse

from labelgrove.core.arrays import CSR, Float32, Int64, offsets
from labelgrove.core.topk import top_k
from labelgrove.data.features import Features, row_blocks
from labelgrove.labels.tree import LabelTree, children_of
from labelgrove.ranking.beam import OWN_MARGIN, log_transformed
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.ranking.weights import dense_weights

CANDIDATES = 1 << 22  # scored together

# Margins of some documents (a slice of rows) at the stored places of a pattern of these rows.
Margins: TypeAlias = Callable[[slice, CSR], Float32]


def below_root(documents: int) -> CSR:
    """What the first level hangs under: one node, a certain one."""
    return _csr(np.zeros(documents, np.float32), np.zeros(documents), np.arange(documents + 1), 1)


def best_nodes(
    models: Sequence[Margins], above: CSR, children: Int64, keep: int, *, threads: int | None = None
) -> CSR:
    """The ``keep`` best nodes of each document among the children of those it has in ``above``.

    Where there are several models, a node's score is the mean of what they give.
    """
    found = []
    for rows in _blocks(above, children):
        pattern = candidates(above[rows], children)
        given = [log_transformed(model(rows, pattern), "l3-hinge") for model in models]
        score = np.logaddexp.reduce(given, axis=0) - np.float32(np.log(len(given)))
        pattern.data = (pattern.data + score).astype(np.float32)
        found.append(_kept(pattern, keep, threads))
    return sparse.vstack(found, format="csr") if len(found) > 1 else found[0]


def candidates(above: CSR, children: Int64) -> CSR:
    """Documents x nodes: the children of the nodes in ``above``, with these nodes' values."""
    nodes, counts = children_of(above.indices, children)
    indptr = offsets(counts)[above.indptr]
    return _csr(np.repeat(above.data, counts), nodes, indptr, int(children[-1]))


def linear_margins(features: Features, ranker: Ranker, *, threads: int | None = None) -> Margins:
    """Margins by a linear model of one level."""

    def margins(rows: slice, pattern: CSR) -> Float32:
        scores = ranker.score(features.take(rows), pattern, params=OWN_MARGIN, threads=threads)
        values: Float32 = scores.data
        return values

    return margins


def head_margins(
    vectors: Any, weights: Float32, bias: Float32, children: Int64, device: torch.device
) -> Margins:
    """Margins by a level's head, from text vectors; patterns must hold all children of a node.

    One product per node above the level, of its documents and its children: looking up a weight
    vector for every place of the pattern takes many times as long.
    """
    table, added = (torch.from_numpy(np.array(a, np.float32)).to(device) for a in (weights, bias))
    above = np.repeat(np.arange(len(children) - 1), np.diff(children))
    is_first = np.zeros(len(above), bool)
    is_first[children[:-1]] = True

    def margins(rows: slice, pattern: CSR) -> Float32:
        texts = torch.from_numpy(np.array(vectors[rows], np.float32)).to(device)
        out = torch.empty(pattern.nnz, device=device)
        starts = np.flatnonzero(is_first[pattern.indices])  # of each run of siblings
        documents = np.searchsorted(pattern.indptr, starts, side="right") - 1
        nodes = above[pattern.indices[starts]]
        order = np.argsort(nodes, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(nodes[order])) + 1, len(order))
        for run in np.split(order, ends[:-1]) if len(order) else []:
            first, last = children[nodes[run[0]]], children[nodes[run[0]] + 1]
            places = starts[run][:, None] + np.arange(last - first)
            product = texts[torch.from_numpy(documents[run]).to(device)] @ table[first:last].T
            out[torch.from_numpy(places).to(device)] = product + added[first:last]
        found: Float32 = out.cpu().numpy()
        return found

    return margins


def chosen_nodes(
    true: CSR, predicted: CSR | None, negatives: Literal["tfn", "man", "tfn+man"]
) -> CSR:
    """Documents x nodes above a level: 1 where the children of a node see a document."""
    flat = [
        _csr(np.ones(matrix.nnz, np.float32), matrix.indices, matrix.indptr, matrix.shape[1])
        for matrix, wanted in ((true, "tfn"), (predicted, "man"))
        if wanted in negatives and matrix is not None
    ]
    return flat[0] if len(flat) == 1 else flat[0].maximum(flat[1])


def train_level(
    features: Features,
    counts: CSR,
    tree: LabelTree,
    params: RankerParams,
    *,
    weighted: bool,
    above: CSR | None,
    seed: int,
    threads: int | None,
) -> Ranker:
    """A linear model of one level, ``tree`` being the level under the one above it.

    ``counts`` are the documents' labels below each node: they choose the positives and, where
    ``weighted`` or ``params.relevance`` says so, what errors on these cost. ``above`` are the nodes
    whose children learn from a document; None on the first level.
    """
    cost = weighted or params.relevance == "induce"
    settings = {"label_weights": "cost" if cost else "ignore", "label_C": None}
    if params.relevance != "induce":
        settings["relevance"] = "none"
    return train_ranker(
        features,
        counts,
        tree,
        RankerParams(**params.get_params() | settings),
        shortlist=above,
        labels_only=above is not None,
        seed=seed,
        threads=threads,
    )


def bootstrapped(
    vectors: Any,
    counts: CSR,
    tree: LabelTree,
    *,
    C: float,
    scaled: bool,
    weighted: bool,
    above: CSR | None,
    eps: float = 0.1,
    seed: int,
    threads: int | None,
) -> tuple[Float32, Float32]:
    """Weights (nodes x width) and biases of a linear model on text vectors, to begin a head with.

    With ``scaled``, C is for vectors of length 1 on average. Vectors of an encoder are much longer:
    a C that is meant for them as they are fits the documents so well that no loss is left from
    which the encoder could learn.
    """
    length = mean_length(vectors) if scaled else 1.0
    # As if vectors, and weights the other way round, were scaled; the bias is the same for both.
    params = RankerParams(C=C / length**2, bias=length, eps=eps, threshold=0.0, storage="float32")
    ranker = train_level(
        Features(dense=vectors),
        counts,
        tree,
        params,
        weighted=weighted,
        above=above,
        seed=seed,
        threads=threads,
    )
    level = ranker.levels[-1]
    weights = dense_weights(level, tree.children(len(tree.parents) - 1), ranker.width)
    return weights, level.bias * np.float32(ranker.bias)


def mean_length(vectors: Any) -> float:
    """Root of the mean square length; 1 where all are zero."""
    squares = sum(
        float(np.square(vectors[rows], dtype=np.float64).sum()) for rows in row_blocks(vectors)
    )
    return float(np.sqrt(squares / max(len(vectors), 1))) or 1.0


def found_share(predicted: CSR, counts: CSR) -> float:
    """Share of the documents' labels that lie below the nodes predicted for them."""
    flat = _csr(
        np.ones(predicted.nnz, np.float32), predicted.indices, predicted.indptr, counts.shape[1]
    )
    return float(counts.multiply(flat).sum() / max(counts.sum(), 1))


def _blocks(above: CSR, children: Int64) -> Iterator[slice]:
    """Slices of documents that together have about as many candidates as are scored together."""
    sizes = np.diff(children)[above.indices]
    before = offsets(sizes)[above.indptr]
    first, documents = 0, above.shape[0]
    while first < documents or first == 0:
        last = int(np.searchsorted(before, before[first] + CANDIDATES, side="right")) - 1
        last = min(documents, max(first + 1, last))
        yield slice(first, last)
        first = last
        if documents == 0:
            return


def _kept(scores: CSR, keep: int, threads: int | None) -> CSR:
    kept = top_k(scores, keep, threads=threads).to_csr(scores.shape[1])
    return _csr(kept.data, kept.indices, kept.indptr, scores.shape[1])


def _csr(data: Any, indices: Any, indptr: Any, columns: int) -> CSR:
    numbers = np.int64 if len(data) > np.iinfo(np.int32).max else np.int32
    arrays = (data, np.asarray(indices, numbers), np.asarray(indptr, numbers))
    return sparse.csr_array(arrays, shape=(len(indptr) - 1, columns))
