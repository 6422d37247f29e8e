"""The labels nearest to documents, by comparing all of them. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Float32
from labelgrove.core.part import Part
from labelgrove.core.topk import TopK, top_k
from labelgrove.labels.masks import LabelMask

SCORES_AT_ONCE = 1 << 26
Product = Callable[[Float32], npt.NDArray[np.float32]]


def search(
    documents: Float32,
    labels: Float32,
    k: int,
    temperature: float,
    *,
    mask: LabelMask | None = None,
    product: Product | None = None,
) -> TopK:
    """The k nearest of ``labels`` (rows of length 1), scored e^((cosine - 1) / temperature)."""
    product = product or (lambda rows: rows @ labels.T)
    k = min(k, len(labels) if mask is None else len(mask))
    step = max(1, SCORES_AT_ONCE // max(1, len(labels)))
    blocks = []
    for first in range(0, max(1, len(documents)), step):
        cosines = product(documents[first : first + step])
        if mask is not None:
            cosines[:, ~mask.allowed] = -np.inf
        blocks.append(top_k(cosines, k))
    best = TopK(*map(np.concatenate, zip(*blocks, strict=True)))
    return best._replace(scores=np.exp((best.scores - 1) / temperature))


def label_vectors(stored: Part, labels: int, width: int) -> Float32:
    """Those of a model folder, checked."""
    vectors = stored.arrays["vectors"]
    if vectors.shape != (labels, width) or not np.isfinite(vectors).all():
        raise ValueError(f"label vectors {vectors.shape} in place of {(labels, width)}")
    return vectors.astype(np.float32)
