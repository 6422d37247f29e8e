"""Checks of documents and labels as people give them, with what is probably wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from labelgrove.data.frames import is_missing
from labelgrove.errors import DataError

# What people give: texts, features or a frame; a list of labels per document, a matrix or a frame.
DocumentsLike: TypeAlias = Any
LabelsLike: TypeAlias = Any

SEPARATORS = (";", "|", ",", "\t")  # that a string with several labels may have


def check_texts(texts: Sequence[object]) -> None:
    """Refuses documents that are not strings; pandas reads empty cells as NaN."""
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


def weighted_labels(labels: object, row: int) -> Iterable[tuple[str, float]]:
    """(label, weight) pairs of one document's labels, refusing what is surely a mistake."""
    if isinstance(labels, str):
        parts = next((p for p in map(labels.split, SEPARATORS) if len(p) > 1), [labels])
        raise DataError(
            f"labels of document {row} are the string {labels!r}; give a list: "
            f"{[part.strip() for part in parts]!r}"
        )
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
