"""Several trees searched as one: the mean of their scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from labelgrove.arrays import Float32, Int32, as_csr
from labelgrove.beam import SearchParams
from labelgrove.ranker import Ranker
from labelgrove.topk import top_k

# Each tree brings at least so many labels, so that the k best do not depend on k up to here.
CANDIDATES = 100


def search_trees(
    rankers: list[Ranker],
    documents: Any,
    *,
    k: int,
    params: SearchParams,
    allow: Int32 | None = None,
    deny: Int32 | None = None,
    threads: int | None = None,
) -> tuple[Int32, Float32, Int32]:
    """The k best labels by mean score over the trees: columns, scores (n x k) and counts.

    A label which a tree does not bring counts as 0 there; where scores are margins it counts as
    much as the worst label that the tree brought for the document.

    >>> from labelgrove.ranker import train_ranker; from labelgrove.tree import LabelTree
    >>> ranker = train_ranker(np.eye(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    >>> search_trees([ranker, ranker], np.eye(2), k=1, params=SearchParams())[0].tolist()
    [[0], [1]]
    """
    options: dict[str, Any] = {"params": params, "allow": allow, "deny": deny, "threads": threads}
    if len(rankers) == 1:
        return rankers[0].search(documents, k=k, **options)
    wanted = max(k, CANDIDATES)
    found = [ranker.search(documents, k=wanted, **options) for ranker in rankers]
    # All rows are equally full: a search brings k labels or all that may be found, and the trees
    # have the same labels.
    full = max((int(counts[0]) for _, _, counts in found if len(counts)), default=0)
    found = [(c[:, :full], s[:, :full], counts) for c, s, counts in found]
    columns = np.concatenate([tree_columns for tree_columns, _, _ in found], axis=1)
    scores = np.concatenate([tree_scores for _, tree_scores, _ in found], axis=1).astype(np.float64)
    rows, width = columns.shape
    least = np.zeros((rows, 1))
    if params.score_kind == "margin":
        worst = np.stack([s[:, -1] for _, s, _ in found], axis=1).astype(np.float64)
        scores -= np.repeat(worst, width // len(rankers), axis=1)
        least = worst.sum(axis=1, keepdims=True)
    union = sparse.csr_array(
        (scores.ravel(), columns.ravel(), np.arange(rows + 1) * width),
        shape=(rows, rankers[0].tree.labels),
    )
    union.sum_duplicates()
    union.data += np.repeat(least.ravel(), np.diff(union.indptr))
    union.data /= len(rankers)
    best = top_k(as_csr(union), k, threads=threads)
    return best.columns, best.scores, best.counts
