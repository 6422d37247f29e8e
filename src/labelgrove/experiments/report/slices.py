"""Slices: the same metrics for the documents of each language, kind or other value of a field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.core.arrays import CSR, Int64
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.documents import ReadOptions
from labelgrove.data.records import field_parts, field_values
from labelgrove.errors import DataError
from labelgrove.evaluation.metrics import Evaluation, evaluate
from labelgrove.experiments.report.runs import Run

MOST_VALUES = 20
WITHOUT = "(no value)"


@dataclass(frozen=True)
class Slice:
    """The documents with one value of a field, and each run's evaluation on them."""

    value: str
    documents: int
    evaluations: tuple[Evaluation, ...]


def measure_slices(
    values: Mapping[str, Sequence[Sequence[str]]],
    runs: Sequence[Run],
    truth: CSR,
    unknown: Int64,
    **settings: Any,
) -> dict[str, list[Slice]]:
    """Evaluations by the values of each field; ``settings`` are those of ``evaluate``."""

    def measured(value: str, rows: Int64) -> Slice:
        of_rows = {"unknown": unknown[rows], **settings}
        evaluations = [evaluate(r.predictions.of_rows(rows), truth[rows], **of_rows) for r in runs]
        return Slice(value, len(rows), tuple(evaluations))

    return {
        field: [measured(value, rows) for value, rows in _rows(of_documents).items()]
        for field, of_documents in values.items()
    }


def _rows(values: Sequence[Sequence[str]]) -> dict[str, Int64]:
    """The documents of the most frequent values, those of all others, and those without any.

    A document with several values counts for each of them.
    """
    counts = Counter(value for one in values for value in set(one))
    ranked = sorted(counts, key=lambda value: (-counts[value], value))
    frequent = set(ranked[:MOST_VALUES])
    rest = f"({len(ranked) - len(frequent):,} other values)"
    rows: dict[str, list[int]] = {value: [] for value in (*ranked[:MOST_VALUES], rest, WITHOUT)}
    for row, one in enumerate(values):
        for name in {value if value in frequent else rest for value in one} or {WITHOUT}:
            rows[name].append(row)
    return {value: np.array(numbers, np.int64) for value, numbers in rows.items() if numbers}


def slice_values(
    slices: Sequence[str] | Mapping[str, Sequence[object]], corpus: Corpus, file: Path | None = None
) -> dict[str, list[list[str]]]:
    """The values of each document, by field.

    They are given, or are fields of the corpus's documents, or are read from its file.
    """
    if isinstance(slices, Mapping):
        values = {
            name: [field_values(value, name) for value in given] for name, given in slices.items()
        }
    else:
        names = [slices] if isinstance(slices, str) else list(slices)
        values = _of_fields(corpus.texts or [""] * len(corpus), names)
        lacking = [name for name in names if not any(values[name])]
        if lacking and file is not None:
            values |= read_values(file, lacking)
    for name, given in values.items():
        if len(given) != len(corpus):
            raise DataError(
                f"slices: {len(given):,} values of {name!r} but {len(corpus):,} documents"
            )
        if not any(given):
            raise DataError(
                f"slices: no document has a value in the field {name!r}; name a field of the file, "
                "or give the values of all documents"
            )
    return values


def read_values(
    file: Path, names: Sequence[str], options: ReadOptions | None = None
) -> dict[str, list[list[str]]]:
    """The values of fields in a corpus file, whether or not a model reads them."""
    from labelgrove.data.formats import iter_documents

    how = replace(options or ReadOptions(), fields=",".join(names), features=False)
    return _of_fields((document.text for document in iter_documents(file, options=how)), names)


def _of_fields(texts: Iterable[str], names: Sequence[str]) -> dict[str, list[list[str]]]:
    values: dict[str, list[list[str]]] = {name: [] for name in names}
    for text in texts if names else ():
        parts = field_parts(text)
        for name in names:
            values[name].append(parts.get(name, []))
    return values
