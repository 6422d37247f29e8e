"""Predictions as JSON lines: what ``labelgrove predict`` writes and ``evaluate`` reads.

One line per document: ``{"id", "labels": [names], "label_ids": [ids], "scores": [...]}``. ``id``
is there if documents have ids, ``label_ids`` if label ids differ from names.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from labelgrove.core.arrays import as_csr
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.late import sparse
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.formats.files import STDIN, lines, replacing
from labelgrove.data.formats.jsonl import json_line
from labelgrove.data.formats.write import Kind, table_format, table_writer
from labelgrove.errors import DataError
from labelgrove.evaluation.predictions import Predictions

_FORMULA = re.compile(r"[=+\-@\t\r](?![0-9.]+$)")
SCORE_DIGITS = 6
TABLE_COLUMNS: dict[str, Kind] = {
    "document": "string",
    "rank": "int64",
    "id": "string",
    "name": "string",
    "score": "float32",
}


def prediction_lines(
    predictions: Predictions, ids: Iterable[str | None], unknown: Sequence[bool] | None = None
) -> Iterator[bytes]:
    """The lines of a predictions file, in the order of the documents.

    Those of documents without a word that tells the model anything say that they are ``unknown``.
    """
    named = predictions.index.names is not predictions.index.ids
    label_ids = predictions.ids() if named else None
    scores, counts = predictions.scores.tolist(), predictions.counts.tolist()
    for row, (document_id, names) in enumerate(zip(ids, predictions.names(), strict=True)):
        line: JsonObject = {} if document_id is None else {"id": document_id}
        line["labels"] = names
        if label_ids is not None:
            line["label_ids"] = label_ids[row]
        line["scores"] = [round(score, SCORE_DIGITS) for score in scores[row][: counts[row]]]
        if unknown is not None and unknown[row]:
            line["unknown"] = True
        yield json_line(line)


def input_columns(names: Iterable[str]) -> dict[str, str]:
    """How a table of predictions calls the columns of its input.

    >>> input_columns(["price", "name"])
    {'price': 'price', 'name': 'input_name'}
    """
    taken = {*TABLE_COLUMNS, *(names := list(names))}
    columns = {}
    for name in names:
        columns[name] = name
        while name in TABLE_COLUMNS and columns[name] in taken:
            columns[name] = f"input_{columns[name]}"
    return columns


@contextmanager
def prediction_writer(out: str, columns: Iterable[str] = ()) -> Iterator[Callable[..., None]]:
    """A function that writes predictions with the ids of their documents, batch by batch.

    A name that ends in .csv or .parquet gives a table with the columns of
    ``Predictions.to_frame`` and ``columns`` of the input, whose cells the function takes as
    ``cells``; any other name, and "-" for standard output, JSON lines.
    """
    format = None if out == STDIN else table_format(out)
    if format is None:
        with nullcontext(sys.stdout.buffer) if out == STDIN else replacing(out) as file:

            def write_lines(
                predictions: Predictions,
                ids: Sequence[str | None],
                *,
                unknown: Sequence[bool] | None = None,
                cells: object = None,
            ) -> None:
                file.writelines(prediction_lines(predictions, ids, unknown))
                file.flush()

            yield write_lines
        return
    seen = 0
    others: dict[str, Kind] = dict.fromkeys(input_columns(columns).values(), "string")
    if format == "csv":
        others = {no_formula(name): kind for name, kind in others.items()}
    with table_writer(out, TABLE_COLUMNS | others, format) as write:

        def write_rows(
            predictions: Predictions,
            ids: Sequence[str | None],
            *,
            unknown: object = None,
            cells: Iterable[Iterable[str]] | None = None,
        ) -> None:
            nonlocal seen
            names = [own or str(seen + row) for row, own in enumerate(ids)]
            seen += len(names)
            cells = [()] * len(names) if cells is None else cells
            rows: Iterable[Sequence[object]] = (
                (name, rank, label.id, label.name, round(label.score, SCORE_DIGITS), *own)
                for name, labels, own in zip(names, predictions, cells, strict=True)
                for rank, label in enumerate(labels, 1)
            )
            if format == "csv":
                rows = ([no_formula(c) if isinstance(c, str) else c for c in row] for row in rows)
            write(rows)

        yield write_rows


def no_formula(cell: str) -> str:
    """A cell of a CSV file that no spreadsheet runs; numbers stay as they are.

    >>> no_formula("=1+1"), no_formula("-3.5"), no_formula("a=b")
    ("'=1+1", '-3.5', 'a=b')
    """
    return f"'{cell}" if _FORMULA.match(cell) else cell


def read_predictions(path: str | Path, corpus: Corpus) -> Predictions:
    """Predictions of the documents of ``corpus``, matched by id if both have ids, else by order.

    Labels that the corpus' index does not know count as misses: they keep their ranks and can never
    be right.
    """
    if table_format(path) is not None:
        raise DataError("is a table; give JSON lines (predict --out predictions.jsonl)", file=path)
    rows = list(_rows(path))
    order = _row_order([row_id for row_id, _, _ in rows], corpus, path)
    strangers: dict[str, int] = {}  # labels that the index does not know, with their columns
    data: list[float] = []
    indices: list[int] = []
    indptr = [0]
    known = len(corpus.index)
    for position in order:
        _, labels, scores = rows[position]
        seen: set[int] = set()
        for label, score in zip(labels, scores, strict=True):
            column = corpus.index.get(label)
            if column is None:
                column = strangers.setdefault(label, known + len(strangers))
            if column in seen:  # SciPy would add the scores up
                raise DataError(
                    f"label {label!r} occurs twice; write label_ids if labels share a name",
                    file=path,
                    line=position + 1,
                )
            seen.add(column)
            indices.append(column)
            data.append(score)
        indptr.append(len(indices))
    shape = (len(corpus), known + len(strangers))
    index = corpus.index
    if strangers:
        index = LabelIndex([*index.ids, *strangers], names=[*index.names, *strangers])
    matrix = as_csr(sparse.csr_array((data, indices, indptr), shape=shape))
    k = max((len(labels) for _, labels, _ in rows), default=0)
    return Predictions.from_csr(matrix, k=max(k, 1), index=index)


def _rows(path: str | Path) -> Iterator[tuple[str | None, list[str], list[float]]]:
    for number, line in lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"not valid JSON ({error})", file=path, line=number) from None
        if not isinstance(row, Mapping) or not isinstance(row.get("labels"), list):
            raise DataError('needs "labels": [...]', file=path, line=number)
        label_ids = row.get("label_ids") or row["labels"]
        scores = row.get("scores")
        if not isinstance(label_ids, list) or not isinstance(scores, list | None):
            raise DataError("label_ids and scores must be lists", file=path, line=number)
        if any(isinstance(label, list | dict) for label in label_ids):
            raise DataError("labels must be strings", file=path, line=number)
        labels = [str(label) for label in label_ids]
        scores = scores or [-float(rank) for rank in range(len(labels))]
        if len(scores) != len(labels):
            raise DataError(
                f"{len(labels)} labels but {len(scores)} scores", file=path, line=number
            )
        try:
            numbers = [float(score) for score in scores]
        except (TypeError, ValueError, OverflowError):
            raise DataError("scores must be numbers", file=path, line=number) from None
        row_id = row.get("id")
        yield None if row_id is None else str(row_id), labels, numbers


def _row_order(row_ids: list[str | None], corpus: Corpus, path: str | Path) -> list[int]:
    if corpus.ids is not None and None not in row_ids and list(corpus.ids) != row_ids:
        positions = {row_id: position for position, row_id in enumerate(row_ids)}
        if len(positions) < len(row_ids) or len(set(corpus.ids)) < len(corpus):
            raise DataError(
                "document ids occur twice and the order differs from the corpus: "
                "predictions cannot be told apart",
                file=path,
            )
        missing = [document_id for document_id in corpus.ids if document_id not in positions]
        if missing:
            raise DataError(f"no prediction for document {missing[0]!r}", file=path)
        return [positions[document_id] for document_id in corpus.ids]
    if len(row_ids) != len(corpus):
        raise DataError(f"{len(row_ids)} predictions for {len(corpus)} documents", file=path)
    return list(range(len(corpus)))
