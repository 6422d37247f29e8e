"""Arguments that users give to a method, checked once: documents and numbers of labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus
from labelgrove.data.features import Features, as_features
from labelgrove.errors import ConfigError, DataError


def checked_inputs(X: Any) -> Any:
    """Documents for fit or predict: Features, or a sequence of strings."""
    if isinstance(X, Corpus):
        return X.inputs
    matrix = sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2)
    if matrix or isinstance(X, Features):
        return as_features(X)
    if isinstance(X, str):
        raise DataError("documents are one string; give a list of strings, even for one document")
    if isinstance(X, StringTable):
        return X
    if not isinstance(X, Sequence):
        try:
            X = list(X)
        except TypeError:
            raise DataError(
                f"documents must be a list of strings, got {type(X).__name__}"
            ) from None
    for position, text in enumerate(X):
        if not isinstance(text, str):
            raise DataError(f"document {position} is {type(text).__name__}, not a string")
    return X


def check_k(k: int) -> int:
    """A usable number of labels to return."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ConfigError(f"k must be a whole number of at least 1, got {k!r}")
    return int(k)
