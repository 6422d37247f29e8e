"""Detect the format of a file or folder from its name and its first lines."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from labelgrove.data.formats.annif import is_full_text_folder, looks_like_annif
from labelgrove.data.formats.attentionxml import find_pair
from labelgrove.data.formats.documents import ReadOptions
from labelgrove.data.formats.files import (
    READ_ERRORS,
    STDIN,
    bare_name,
    compression_of,
    damaged,
    existing,
    lines,
    open_bytes,
    sibling,
    standard_input,
)
from labelgrove.data.formats.lf import find_lf_matrices
from labelgrove.data.formats.matrices import matrix_kind
from labelgrove.data.formats.pecos import find_pecos
from labelgrove.data.formats.xc import kind_of_lines
from labelgrove.errors import ConfigError, DataError

FORMATS = {
    "jsonl": 'one JSON object per line: {"text": ..., "labels": [...], "id": ...}',
    "json": "an array of such objects",
    "csv": "comma-separated columns with a header line; labels split at | or ;",
    "tsv": "tab-separated columns with a header line; labels split at | or ;",
    "parquet": "Parquet with text and labels columns (needs the extra data)",
    "xlsx": "Excel: the first sheet, with a header row, like csv (needs the extra excel)",
    "xc": 'extreme classification repository: "documents features labels", then svmlight lines',
    "svmlight": "label,label index:value ..., without a header line",
    "lf": "label-feature data sets: trn.json.gz with lbl.json.gz beside it",
    "attentionxml": "folder of AttentionXML or LightXML: train_texts.txt and train_labels.txt",
    "pecos": "folder of PECOS: X.trn.txt or X.trn.npz, and Y.trn.npz",
    "annif": "Annif: TSV of texts and <URIs> without a header line, or a.txt with a.tsv or a.key",
    "text": "plain text, one document per line, no labels",
}
EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "text",
}
HEAD = 1 << 16


def detect_format(path: str | os.PathLike[str]) -> str:
    """The name of the format, a key of FORMATS; DataError if none matches."""
    if str(path) == STDIN:
        return _by_content(STDIN) or "text"
    file = existing(path)
    return _of_folder(file) if file.is_dir() else _of_file(file)


def check_format(name: str) -> str:
    """The name, if it is a key of FORMATS."""
    if name not in FORMATS:
        raise ConfigError(f"format: must be one of {', '.join(FORMATS)}, got {name!r}")
    return name


def _of_folder(folder: Path) -> str:
    for part in ("train", "test", "valid"):
        options = ReadOptions(part=part)
        if find_pecos(folder, options):
            return "pecos"
        if find_pair(folder, options):
            return "attentionxml"
        if find_lf_matrices(folder, options):
            return "lf"
    if sibling(folder, "trn.json", "tst.json"):
        return "lf"
    if is_full_text_folder(folder):
        return "annif"
    raise DataError(
        "this folder has no known format: no train.jsonl, no X.trn.* with Y.trn.npz, no "
        "train_texts.txt with train_labels.txt, no trn.json.gz, no trn_X_Xf.txt with trn_X_Y.txt, "
        "and no .txt files with .tsv or .key files. Give the path of a file",
        file=folder,
    )


def _of_file(file: Path) -> str:
    if find_pecos(file, ReadOptions()):
        return "pecos"
    if find_pair(file, ReadOptions()):
        return "attentionxml"
    by_name = EXTENSIONS.get(Path(bare_name(file)).suffix.lower())
    if by_name == "tsv" and looks_like_annif(next(lines(file), (1, b""))[1]):
        return "annif"
    # The first line of a CSV file can be anything; otherwise content is surer than the name.
    if by_name in ("csv", "tsv", "parquet", "xlsx"):
        return by_name
    if bare_name(file).endswith((".npz", ".npy")):
        raise DataError(
            "is a matrix, and there are no labels with it; give the folder of X.trn.npz and "
            "Y.trn.npz (labelgrove train FOLDER), or the texts, and this file as --features",
            file=file,
        )
    if find_lf_matrices(file, ReadOptions()):
        return "lf"
    format = _by_content(file) or by_name
    if format == "text" and matrix_kind(file) == "pairs":
        raise DataError(
            "is a matrix, and there are no labels with it; give the folder of trn_X_Xf.txt and "
            "trn_X_Y.txt, or the texts, and this file as --features",
            file=file,
        )
    if format is None:
        reason = f"unknown file format; set format (--format) to one of {', '.join(FORMATS)}"
        raise DataError(reason, file=file)
    return format


def _by_content(path: Path | str) -> str | None:
    if str(path) == STDIN:
        # Peeking leaves the bytes for the reader, but cannot decompress them.
        head = standard_input().peek(HEAD)[:HEAD]
        if compression_of(head):
            return "jsonl"
    else:
        with open_bytes(path) as stream:
            try:
                head = stream.read(HEAD)
            except READ_ERRORS as error:
                raise damaged(error, path) from error
    if head.startswith(b"PAR1"):
        return "parquet"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").split(b"\n", 2)
    first, second = start[0], start[1] if len(start) > 1 else b""
    if first.lstrip().startswith(b"{"):
        return "lf" if _has_target_numbers(first) else "jsonl"
    if matrix := kind_of_lines(first, second):
        return matrix
    if re.match(rb"\s*\[\s*\{", head.removeprefix(b"\xef\xbb\xbf")):
        return "json"
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        raise DataError("is an old Excel file; save it as .xlsx", file=path)
    return None


def _has_target_numbers(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        # The line may be longer than HEAD; look for the field's name instead.
        return b'"target_ind"' in line and b'"labels"' not in line
    return isinstance(record, dict) and "target_ind" in record and "labels" not in record
