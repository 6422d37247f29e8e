"""Several trees searched as one: the mean of their scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelgrove.core.arrays import Float32, Int32
from labelgrove.core.topk import merge_lists
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker

# Each tree brings at least so many labels, so that the k best do not depend on k up to here.
CANDIDATES = 100


def search_trees(
    rankers: list[Ranker],
    documents: Any,
    *,
    k: int,
    params: SearchParams,
    allow: Any = None,
    deny: Int32 | None = None,
    threads: int | None = None,
) -> tuple[Int32, Float32, Int32]:
    """The k best labels by mean score over the trees: columns, scores (n x k) and counts.

    A label which a tree does not bring counts as 0 there; where scores are margins it counts as
    much as the worst label that the tree brought for the document.

    >>> from labelgrove.ranking.ranker import train_ranker

    >>> from labelgrove.labels.tree import LabelTree
    >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    >>> search_trees([ranker, ranker], np.eye(2), k=1, params=SearchParams())[0].tolist()
    [[0], [1]]
    """
    options: dict[str, Any] = {"params": params, "allow": allow, "deny": deny, "threads": threads}
    if len(rankers) == 1:
        return rankers[0].search(documents, k=k, **options)
    wanted = max(k, CANDIDATES)
    parts = rankers[0].parts(documents)
    found = [ranker.search(parts, k=wanted, **options) for ranker in rankers]
    # All lists are equally wide: a search brings k labels or all that may be found, and the trees
    # have the same labels.
    columns = np.stack([tree_columns for tree_columns, _, _ in found])
    scores = np.stack([tree_scores for _, tree_scores, _ in found])
    return merge_lists(
        columns,
        scores,
        k,
        combine="mean-or-last" if params.score_kind == "margin" else "mean",
        threads=threads,
    )
