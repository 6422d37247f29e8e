"""Documents and labels as people give them: lists, or frames of pandas, polars and Arrow.

Frames are read without importing any of these libraries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeAlias

import numpy as np

from labelgrove.core.arrays import Float32
from labelgrove.core.strings import StringTable
from labelgrove.errors import DataError

Frame: TypeAlias = Any  # a table of pandas, polars or Arrow
Column: TypeAlias = Any  # one of its columns, or any other value


def is_frame(value: object) -> bool:
    """Whether this is a table with named columns."""
    return _names(value) is not None


def without_frame(value: Column, what: str) -> Column:
    """The only column of a frame as a list; anything else as it is.

    Iterating over a frame or a mapping gives the names of its columns or its keys, which would be
    taken for documents. So both are refused, as are sets, which have no order.
    """
    if isinstance(value, Mapping):
        keys = ", ".join(repr(key) for key in list(value)[:3])
        raise DataError(f"{what} are a mapping with the keys {keys}; give a list of its values")
    if isinstance(value, Set):
        raise DataError(f"{what} are a set, which has no order; give a list")
    if hasattr(value, "collect"):  # asking it for its columns might run a query
        raise DataError(f"{what} are a {type(value).__name__}, not yet read; give df.collect()")
    names = _names(value)
    if names is None:
        return as_list(value)
    if len(names) != 1:
        columns = ", ".join(repr(name) for name in names[:5])
        more = "make documents with fields of several: labelgrove.records(df, text=..., fields=...)"
        if what == "labels":
            more = "fill every cell with 0 or 1"
        raise DataError(
            f"{what} are a data frame with {len(names)} columns ({columns}); give one of them, "
            f"df[{names[0] if names else 'text'!r}], or {more}"
        )
    return _column(value, names[0])


def as_list(value: Column) -> Column:
    """A column of pandas, polars or Arrow as a list of Python values; anything else as it is."""
    read = getattr(value, "to_pylist", None) or getattr(value, "to_list", None)
    return value if read is None or is_frame(value) else list(read())


def is_missing(value: object) -> bool:
    """Whether a cell has no value: None, NaN, or the NA and NaT of pandas."""
    nan = isinstance(value, (float, np.floating)) and np.isnan(value)
    return value is None or bool(nan) or type(value).__name__ in ("NAType", "NaTType")


def label_column(value: Column) -> list[object] | None:
    """The label lists in a column or a frame, which may be one of numbers; None for other values.

    >>> import pandas
    >>> label_column(pandas.DataFrame({"shoes": [1, 0], "hats": [1, 1]}))
    [['shoes', 'hats'], ['hats']]
    """
    if is_frame(value):
        table = indicator(value)
        if table is None:
            return list(without_frame(value, "labels"))
        return [[table[1][column] for column in np.flatnonzero(row > 0)] for row in table[0]]
    column = as_list(value)
    return None if column is value else column


def frame_rows(frame: Frame) -> list[dict[str, object]]:
    """The rows of a frame by the names of its columns."""
    names = [str(name) for name in _names(frame) or []]
    columns = [_column(frame, name) for name in _names(frame) or []]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def indicator(frame: Frame) -> tuple[Float32, list[str]] | None:
    """A frame of numbers as a documents x labels matrix with its labels; None for other frames."""
    names = _names(frame) or []
    columns = [_column(frame, name) for name in names]
    numbers = (int, float, np.number, np.bool_)
    if not columns or not all(isinstance(cell, numbers) for cells in columns for cell in cells):
        return None
    return np.array(columns, np.float32).T, [str(name) for name in names]


def _names(value: object) -> list[object] | None:
    """The names of a frame's columns: pandas and polars say ``columns``, Arrow ``column_names``."""
    if len(getattr(value, "shape", ())) != 2:
        return None
    names = getattr(value, "column_names", None)  # Arrow's ``columns`` are the data
    if names is None:
        names = getattr(value, "columns", None)
    return None if names is None or callable(names) else list(names)


def _column(frame: Frame, name: object) -> list[object]:
    column = frame[name]
    values = as_list(column)
    if values is column:
        kind = f"{type(frame).__name__} with the column {name!r}"
        raise DataError(f"a {kind} is not read; name columns once, in pandas, polars or Arrow")
    return list(values)


SEPARATORS = (";", "|", ",", "\t")  # that a string with several labels may have


def text_list(documents: Column) -> Sequence[str]:
    """Texts, all of them strings; pandas reads empty cells as NaN."""
    if isinstance(documents, str):
        raise DataError("documents are one string; give a list of strings, even for one document")
    if isinstance(documents, StringTable):
        return documents
    given = documents if type(documents) is list else without_frame(documents, "documents")
    try:
        texts: Sequence[str] = given if isinstance(given, Sequence) else list(given)
    except TypeError:
        kind = type(documents).__name__
        raise DataError(f"documents must be a list of strings, got {kind}") from None
    for row, text in enumerate(texts):
        if isinstance(text, str):
            continue
        if is_missing(text):
            raise DataError(
                f"document {row} is missing ({text}); leave such documents out, or make them "
                'empty: df["text"].fillna(""), in polars fill_null("")'
            )
        if isinstance(text, Mapping):
            raise DataError(
                f"document {row} is a mapping of fields; say which of them are texts: "
                'labelgrove.records(rows, text=["title"], fields=["creator"])'
            )
        raise DataError(f"document {row} is {type(text).__name__}, not a string: {text!r:.60}")
    return texts


def weighted_labels(labels: object, row: int) -> Iterable[tuple[str, float]]:
    """(label, weight) pairs of one document's labels, refusing what is surely a mistake."""
    if isinstance(labels, str):
        parts = next((p for p in map(labels.split, SEPARATORS) if len(p) > 1), None)
        if parts is not None:
            several = [part.strip() for part in parts]
            raise DataError(
                f"labels of document {row} are the string {labels!r}, which may be one label or "
                f"several; give a list: {[labels]!r} or {several!r}"
            )
        labels = [str(labels)]
    if is_missing(labels):
        raise DataError(
            f"labels of document {row} are missing ({labels}); give [] to a document without labels"
        )
    if isinstance(labels, bytes) or not isinstance(labels, Iterable):
        raise DataError(f"labels of document {row} are {labels!r}; give a list of labels")
    pairs = labels.items() if isinstance(labels, Mapping) else ((label, 1.0) for label in labels)
    for label, weight in pairs:
        if not isinstance(label, str):
            number = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
            label = str(label) if number else label
        if not isinstance(label, str):
            raise DataError(f"labels of document {row}: {label!r} is not a string")
        if not label:
            raise DataError(f"labels of document {row}: an empty label")
        if not isinstance(weight, (int, float, np.number)) or not 0 < weight < np.inf:
            raise DataError(f"labels of document {row}: weight {weight!r} of {label!r} must be > 0")
        yield label, float(weight)
