"""Data frames of pandas, polars and Arrow, read without importing any of them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from labelgrove.errors import DataError


def is_frame(value: Any) -> bool:
    """Whether this is a table with named columns."""
    return _names(value) is not None


def without_frame(value: Any, what: str) -> Any:
    """The only column of a frame as a list; anything else as it is.

    Iterating over a frame or a mapping gives the names of its columns or its keys, which would be
    taken for documents. So both are refused, as are sets, which have no order.
    """
    if isinstance(value, Mapping):
        keys = ", ".join(repr(key) for key in list(value)[:3])
        raise DataError(f"{what} are a mapping with the keys {keys}; give a list of its values")
    if isinstance(value, Set):
        raise DataError(f"{what} are a set, which has no order; give a list")
    names = _names(value)
    if names is None:  # Arrow's columns hold scalars of their own
        return value.to_pylist() if hasattr(value, "to_pylist") else value
    if len(names) != 1:
        columns = ", ".join(repr(name) for name in names[:5])
        raise DataError(
            f"{what} are a data frame with {len(names)} columns ({columns}); give one of them, "
            f"df[{names[0] if names else 'text'!r}], or make documents with fields of several: "
            "labelgrove.records(df, text=[...], fields=[...])"
        )
    return _column(value, names[0])


def frame_rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame by the names of its columns."""
    names = [str(name) for name in _names(frame) or []]
    columns = [_column(frame, name) for name in _names(frame) or []]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def indicator(frame: Any) -> tuple[Any, list[str]] | None:
    """A frame of numbers as a documents x labels matrix with its labels; None for other frames."""
    names = _names(frame) or []
    columns = [np.asarray(_column(frame, name)) for name in names]
    if not columns or any(column.dtype.kind not in "biuf" for column in columns):
        return None
    return np.stack(columns, axis=1).astype(np.float32), [str(name) for name in names]


def _names(value: Any) -> list[Any] | None:
    """The names of a frame's columns: pandas and polars say ``columns``, Arrow ``column_names``."""
    names = getattr(value, "column_names", None)  # Arrow's ``columns`` are the data
    if names is None:
        names = getattr(value, "columns", None)
    shape = getattr(value, "shape", ())
    if names is None or callable(names) or len(shape) != 2:
        return None
    return list(names)


def _column(frame: Any, name: Any) -> list[Any]:
    column = frame[name]
    values = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    return list(values)
