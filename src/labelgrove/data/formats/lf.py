"""Label-feature data sets: ``trn.json.gz`` with labels by number, their titles in ``lbl.json.gz``.

A line of the first is ``{"uid", "title", "content", "target_ind": [...], "target_rel": [...]}``;
label number n is line n (from 0) of the second. Without texts there are two matrices,
``trn_X_Xf.txt`` (features) and ``trn_X_Y.txt`` (labels). Filter files list the numbers of documents
and labels that are the same thing; these pairs do not count in evaluation.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from labelgrove.core.nfc import nfc
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.formats import files, jsonl
from labelgrove.data.formats.building import build_corpus
from labelgrove.data.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import (
    bare_name,
    existing,
    folder_and_parts,
    parse_lines,
    part_names,
    sibling,
)
from labelgrove.data.formats.jsonl import joined_text, parse_object
from labelgrove.data.formats.labels import LabelTable, index_with_names
from labelgrove.data.formats.matrices import read_matrix
from labelgrove.errors import DataError

TEXT_FIELDS = ("title", "content")
FEATURES = "_X_Xf.txt"
_FEATURE_FILE = re.compile(r"(?P<part>.*)_X_Xf\.txt")


def find_lf_matrices(path: Path, options: ReadOptions) -> tuple[Path, Path] | None:
    """Features and labels of a folder's part, or of a part whose features are given."""
    folder, parts = folder_and_parts(path, options, _FEATURE_FILE)
    for part in parts:
        files = sibling(folder, part + FEATURES), sibling(folder, f"{part}_X_Y.txt")
        if files[0] is not None and files[1] is not None:
            return files[0], files[1]
    return None


def iter_lf(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a label-feature file; labels are their numbers as strings."""
    file = _document_file(Path(path), options)
    if file is None:
        raise DataError("has features but no texts; use read_corpus", file=path)
    return parse_lines(file, document_parser(options, report, labels=None), options, report)


def _document_file(path: Path, options: ReadOptions) -> Path | None:
    """The file of the texts, or None if there are matrices alone."""
    if not path.is_dir():
        return None if bare_name(path).endswith(FEATURES) else path
    parts = part_names(options)
    file = sibling(path, *(f"{part}.json" for part in parts))
    if file is None and find_lf_matrices(path, options) is None:
        raise DataError(
            f"this folder has no {parts[-1]}.json.gz, and no {parts[-1]}{FEATURES} with "
            f"{parts[-1]}_X_Y.txt",
            file=path,
        )
    return file


def document_parser(
    options: ReadOptions, report: ReadReport, *, labels: int | None
) -> Callable[[str], Document]:
    """A function that parses a line to a document; label numbers must be below ``labels``."""
    text_of = jsonl.text_reader(options, report, options.text_fields(default=TEXT_FIELDS))

    def parse(line: str) -> Document:
        record = parse_object(line)
        numbers = record.get("target_ind")
        if not isinstance(numbers, list) or any(type(n) is not int or n < 0 for n in numbers):
            raise BadLine("field 'target_ind' must be a list of whole numbers, none negative")
        if labels is not None and max(numbers, default=-1) >= labels:
            raise BadLine(f"field 'target_ind' has {max(numbers)}, but there are {labels} labels")
        return Document(
            text_of(record),
            jsonl.document_labels(numbers, record.get("target_rel"), "target_ind", report),
            jsonl.document_id(record.get("uid"), "uid"),
        )

    return parse


def read_lf(
    path: Path, options: ReadOptions, report: ReadReport, *, names: LabelTable | None = None
) -> Corpus:
    """A corpus with a column for every line of ``lbl.json``; without it, for labels that occur."""
    file = _document_file(path, options)
    label_file = sibling(path if path.is_dir() else path.parent, "lbl.json")
    index = None if label_file is None else _label_index(label_file)
    if file is None:
        corpus = _read_matrices(path, options, report, index)
    else:
        parse = document_parser(options, report, labels=None if index is None else len(index))
        documents = parse_lines(file, parse, options, report)
        corpus = build_corpus(documents, source=file, report=report, index=index)
    if names is None or corpus.index.names is not corpus.index.ids:
        return corpus
    return replace(corpus, index=index_with_names(corpus.index.ids, names, listed=True))


def _read_matrices(
    path: Path, options: ReadOptions, report: ReadReport, index: LabelIndex | None
) -> Corpus:
    files = find_lf_matrices(path, options)
    assert files is not None  # detection, or the search for texts, has looked for them
    features, labels = map(read_matrix, files)
    if labels.shape[0] != features.shape[0]:
        raise DataError(
            f"has {labels.shape[0]:,} rows, but {files[0].name} has {features.shape[0]:,}",
            file=files[1],
        )
    index = index or LabelIndex([str(number) for number in range(labels.shape[1])])
    if len(index) != labels.shape[1]:
        raise DataError(f"has {labels.shape[1]:,} labels, lbl.json {len(index):,}", file=files[1])
    report.count(labels)
    return Corpus(None, labels, index, features=features)


def _label_index(path: Path) -> LabelIndex:
    def parse(line: str) -> tuple[str, str]:
        record = parse_object(line)
        title = joined_text(record, ["title"])
        return title, joined_text(record, TEXT_FIELDS) if record.get("content") else ""

    # Skipping a bad label would shift the numbers of all that follow, so no bad line is skipped.
    rows = list(parse_lines(path, parse, ReadOptions(), ReadReport()))
    has_texts = any(text for _, text in rows)
    return LabelIndex(
        [str(number) for number in range(len(rows))],
        names=[nfc(title) for title, _ in rows],
        texts=[text or title for title, text in rows] if has_texts else None,
    )


def read_filter_pairs(path: str | os.PathLike[str]) -> npt.NDArray[np.int64]:
    """The (document, label) numbers of a filter file as an n x 2 array."""
    file = existing(path)
    numbers = array("q")
    for number, line in files.lines(file):
        pair = line.split()
        if not pair:
            continue
        if len(pair) != 2 or not (pair[0].isdigit() and pair[1].isdigit()):
            reason = "the line must have two whole numbers, document and label"
            raise DataError(reason, file=file, line=number)
        try:
            numbers.extend((int(pair[0]), int(pair[1])))
        except (OverflowError, ValueError) as error:
            raise DataError("a number is too large", file=file, line=number) from error
    return np.array(numbers, dtype=np.int64).reshape(-1, 2)
