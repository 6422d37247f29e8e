"""SciPy, imported when it is first used: that takes longer than a prediction, which needs none."""

from __future__ import annotations

import importlib
import sys
from typing import Any, TypeAlias, TypeVar

SparseMatrix: TypeAlias = Any  # of any kind that SciPy has; SciPy ships no types
Numbers = TypeVar("Numbers")


class _Sparse:
    """Stands for the module ``scipy.sparse``."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module("scipy.sparse"), name)
        setattr(self, name, value)  # found without this method from now on
        return value

    @staticmethod
    def issparse(value: object) -> bool:
        """As SciPy's; where nobody imported SciPy, nothing can be one of its matrices."""
        check = getattr(sys.modules.get("scipy.sparse"), "issparse", None)
        return check is not None and bool(check(value))


sparse: Any = _Sparse()


def expit(values: Numbers) -> Numbers:
    """As ``scipy.special.expit``: 1 / (1 + exp(-values))."""
    from scipy import special

    return special.expit(values)  # type: ignore[no-any-return]


def log_expit(values: Numbers) -> Numbers:
    """As ``scipy.special.log_expit``: the logarithm of :func:`expit`, exact for small values."""
    from scipy import special

    return special.log_expit(values)  # type: ignore[no-any-return]
