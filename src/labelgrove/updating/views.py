"""How methods show their rankers to updating: documents sent to clusters, trees extended."""

from __future__ import annotations

import numpy as np

from labelgrove.data.features import Features
from labelgrove.labels.tree import LabelTree
from labelgrove.model.growth import Read
from labelgrove.ranking.beam import SearchParams, beam_per_level
from labelgrove.ranking.growing import route, with_labels
from labelgrove.ranking.negatives import nodes_to_mine
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams


def routed_documents(
    features: Features,
    rankers: list[Ranker],
    params: RankerParams,
    search: SearchParams,
    threads: int | None,
) -> Read:
    """The clusters that the upper levels of each tree find, as when mining for training."""
    widths = rankers[0].tree.widths
    beam = beam_per_level(search.beam, widths[:-1] or widths)[-1]
    terms = np.inf
    if features.sparse is not None and not features.width:
        terms = features.sparse.nnz / max(1, len(features))
    mined = nodes_to_mine(params.mined_nodes, terms, beam=beam)
    most = max(mined, beam)
    routed = [route(ranker, features, search, most=most, threads=threads) for ranker in rankers]
    return Read(features, routed, mined)


def extended_tree(tree: LabelTree, grown: LabelTree) -> LabelTree:
    """A tree with the labels of ``grown``: new ones go where most labels of their cluster are."""
    last, clusters = len(grown.parents) - 1, []
    children = grown.children(last)
    own = tree.parents[-1][tree.leaf_positions]
    for label in range(tree.labels, grown.labels):
        parent = grown.parents[last][grown.leaf_positions[label]]
        beside = grown.leaf_labels[children[parent] : children[parent + 1]]
        clusters.append(int(np.argmax(np.bincount(own[beside[beside < tree.labels]]))))
    return with_labels(tree, clusters)
