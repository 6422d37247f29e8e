"""XR-Transformer's text vectors and shortlists, and the linear models of its levels.

A label tree is descended level by level, with a model per level. Shortlists are sparse documents x
nodes matrices of logarithms, so 0 is the best score and small scores do not vanish. A score is the
l3-hinge of the node's margin times its parent's score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import torch

from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import CSR, Array, Float32, Int64, offsets, stacked_rows, with_values
from labelgrove.core.late import sparse
from labelgrove.core.part import Part
from labelgrove.core.scratch import entry_ranges
from labelgrove.core.topk import top_k
from labelgrove.data.features import Features, row_blocks
from labelgrove.labels.tree import LabelTree, children_of
from labelgrove.methods.inputs import beside_terms
from labelgrove.methods.neural import make_runner
from labelgrove.methods.xrtransformer.net import XrParams
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import Network
from labelgrove.nn.training.checkpoint import fill
from labelgrove.nn.training.devices import choose_device
from labelgrove.ranking.beam import OWN_MARGIN, log_transformed
from labelgrove.ranking.negatives import row_shares
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.ranking.weights import dense_weights

CANDIDATES = 1 << 22  # scored together, unless one document has more

# Margins of some documents (a slice of rows) at the stored entries of a pattern of these rows.
Margins: TypeAlias = Callable[[slice, CSR], Float32]


@dataclass(frozen=True)
class Standard:
    """How to standardise text vectors: subtract the mean, multiply with the scale."""

    mean: Float32
    scale: Float32

    def state(self) -> Part:
        return Part({}, dict(vars(self)))

    @classmethod
    def from_state(cls, part: Part) -> Standard:
        return cls(part.arrays["mean"], part.arrays["scale"])


def beside(terms: CSR, vectors: Array | None) -> Features:
    """tf-idf rows and text vectors of unit length: the paper's Phi_cat."""
    return Features(terms, beside_terms(np.asarray(vectors), "l2"))


def network_of(encoder: Encoder, head: torch.nn.Module, standard: Standard | None) -> Network:
    """An encoder and a head that reads its last states, standardised."""
    network = Network(encoder, head, (-1,))
    if standard is not None:
        network.mean.copy_(torch.from_numpy(np.array(standard.mean)))
        network.scale.copy_(torch.from_numpy(np.array(standard.scale)))
    return network


def standardise(encoder: Encoder, tokens: Tokens, precision: str) -> Standard:
    """The standardisation of text vectors on all levels."""
    network = network_of(encoder, torch.nn.Identity(), None)
    make_runner(network, precision).standardise(tokens)
    return Standard(network.mean.cpu().numpy(), network.scale.cpu().numpy())


def embedded(
    encoder: Encoder,
    tokens: Tokens,
    standard: Standard | None,
    *,
    precision: str,
    progress: Progress | None = None,
) -> Float32:
    """Text vectors, computed on this device in this precision."""
    network = network_of(encoder, torch.nn.Identity(), standard)
    network.train(encoder.training)
    vectors = np.zeros((len(tokens), encoder.width), np.float32)
    runner = make_runner(network, precision)
    runner.fill(vectors, tokens, lambda states: states[0].float(), progress)
    return vectors


def restore(encoder: Encoder, network: Part) -> Encoder:
    """The encoder with the weights after a level."""
    stored = {
        name.removeprefix("weights/"): torch.from_numpy(np.array(array))
        for name, array in network.arrays.items()
        if name.startswith("weights/")
    }
    fill(encoder.model.state_dict(), stored, "the level before")
    return encoder


def below_root(documents: int) -> CSR:
    """The shortlist above the first level: one node, with certainty."""
    zeros = np.zeros(documents, np.float32), np.zeros(documents, np.int32)
    return sparse.csr_array((*zeros, np.arange(documents + 1)), shape=(documents, 1))


def best_nodes(margins: Margins, above: CSR, children: Int64, keep: int) -> CSR:
    """The ``keep`` best nodes of each document among the children of its nodes in ``above``."""
    blocks = []
    sizes = offsets(np.diff(children)[above.indices])[above.indptr]
    for rows in entry_ranges(sizes, CANDIDATES):
        pattern = candidates(above[rows], children)
        pattern.data += log_transformed(margins(rows, pattern), "l3-hinge")
        blocks.append(top_k(pattern, keep).to_csr(pattern.shape[1]))
    return stacked_rows(blocks)


def candidates(above: CSR, children: Int64) -> CSR:
    """Documents x nodes: the children of the nodes in ``above``, with these nodes' values."""
    nodes, counts = children_of(above.indices, children)
    indptr = offsets(counts)[above.indptr]
    shape = above.shape[0], int(children[-1])
    return sparse.csr_array((np.repeat(above.data, counts), nodes, indptr), shape=shape)


def linear_margins(features: Features, ranker: Ranker) -> Margins:
    """Margins by a linear model of one level."""
    return lambda rows, pattern: ranker.score(features.take(rows), pattern, params=OWN_MARGIN).data


def head_margins(vectors: Array, weights: Float32, bias: Float32, children: Int64) -> Margins:
    """Margins by a level's head, from text vectors; patterns must contain all children of a node.

    There is one product per node above the level, of its documents and its children. Looking up a
    weight vector for every entry of the pattern takes many times as long.
    """
    device = choose_device()
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
            entries = starts[run][:, None] + np.arange(last - first)
            product = texts[torch.from_numpy(documents[run]).to(device)] @ table[first:last].T
            out[torch.from_numpy(entries).to(device)] = product + added[first:last]
        values: Float32 = out.cpu().numpy()
        return values

    return margins


def chosen_nodes(true: CSR, predicted: CSR, negatives: Literal["tfn", "man", "tfn+man"]) -> CSR:
    """Documents x nodes above a level: 1 for the nodes whose children learn from a document."""
    if negatives == "tfn+man":
        return with_values(true, 1).maximum(with_values(predicted, 1))
    return with_values(true if negatives == "tfn" else predicted, 1)


def train_level(
    features: Features,
    counts: CSR,
    tree: LabelTree,
    params: RankerParams,
    *,
    weighted: bool,
    above: CSR | None,
    seed: int,
) -> Ranker:
    """A linear model of one level; ``tree`` has this level and the one above.

    ``counts`` are the documents' labels below each node: they are the positives and, if
    ``weighted`` or ``params.relevance`` says so, the costs of errors. ``above`` are the nodes whose
    children learn from a document; None on the first level.
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
        seed=seed,
    )


def bootstrapped(
    vectors: Array,
    counts: CSR,
    tree: LabelTree,
    heads: XrParams,
    *,
    above: CSR | None,
    eps: float = 0.1,
    seed: int,
) -> tuple[Float32, Float32]:
    """Weights (nodes x width) and biases of a linear model on text vectors, to initialise a head.

    If ``heads.bootstrap`` is cost-linear, errors cost what the paper says (Eq. 11): a true node its
    share of the document's labels, any other node ``heads.alpha``.

    With ``heads.bootstrap_scaled``, C is for vectors with a mean length of 1. An encoder's vectors
    are much longer, and the same C would fit the documents so well that no loss is left to train
    the encoder.
    """
    C, by_cost = heads.bootstrap_C, heads.bootstrap == "cost-linear"
    length = mean_length(vectors) if heads.bootstrap_scaled else 1.0
    # This is the same as dividing the vectors by their length and scaling the weights back.
    params = RankerParams(C=C / length**2, bias=length, eps=eps, threshold=0.0, storage="float32")
    if by_cost:
        params = replace(params, C=heads.alpha * params.C, positive_weight=1 / heads.alpha)
        counts = row_shares(counts)
    ranker = train_level(
        Features(dense=vectors),
        counts,
        tree,
        params,
        weighted=by_cost or heads.bootstrap == "weighted-linear",
        above=above,
        seed=seed,
    )
    level = ranker.levels[-1]
    weights = dense_weights(level, tree.children(len(tree.parents) - 1), ranker.width)
    return weights, level.bias * np.float32(ranker.bias)


def mean_length(vectors: Array) -> float:
    """Root of the mean square length; 1 where all are zero."""
    squares = sum(
        float(np.square(vectors[rows], dtype=np.float64).sum()) for rows in row_blocks(vectors)
    )
    return float(np.sqrt(squares / max(len(vectors), 1))) or 1.0


def found_share(predicted: CSR, counts: CSR) -> float:
    """Share of the documents' labels that are below their predicted nodes."""
    hits = counts.multiply(with_values(predicted, 1)).sum()
    return float(hits / max(counts.sum(), 1))
