"""Several trees searched as one: the mean of their scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelgrove.core.arrays import Float32, Int32
from labelgrove.core.topk import Combine, merge_lists
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker

# Each tree finds at least this many labels, so that up to here the best k do not depend on k.
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

    A label that a tree does not find counts as 0 there. If scores are margins, it counts as much as
    the worst label that the tree found for the document.
    """
    options: dict[str, Any] = {"params": params, "allow": allow, "deny": deny, "threads": threads}
    if len(rankers) == 1:
        return rankers[0].search(documents, k=k, **options)
    parts = rankers[0].parts(documents)
    lists = [ranker.search(parts, k=max(k, CANDIDATES), **options) for ranker in rankers]
    # All lists are equally wide: a search finds k labels or all allowed ones, and the trees have
    # the same labels.
    columns, scores, _ = (np.stack(arrays) for arrays in zip(*lists, strict=True))
    combine: Combine = "mean-or-last" if params.score_kind == "margin" else "mean"
    return merge_lists(columns, scores, k, combine=combine, threads=threads)
