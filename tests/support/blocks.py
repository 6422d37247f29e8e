"""The same matrix laid out as sparse, dense, or partly sparse and partly dense features."""

import numpy as np
from scipy import sparse

from labelgrove.data.features import Features

KINDS = ["sparse", "dense", "both"]


def as_blocks(matrix, kind):
    """Features whose columns are those of ``matrix``, in the same order."""
    dense = np.asarray(matrix.to_csr().toarray() if isinstance(matrix, Features) else matrix)
    split = {"sparse": dense.shape[1], "dense": 0, "both": dense.shape[1] // 2}[kind]
    terms = sparse.csr_array(dense[:, :split]) if split else None
    return Features(terms, dense[:, split:] if split < dense.shape[1] else None)
