"""Which format a file or folder has, by its name and by its first lines."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from labelgrove.errors import ConfigError, DataError
from labelgrove.formats.annif import is_full_text_folder, looks_like_annif
from labelgrove.formats.attentionxml import find_pair
from labelgrove.formats.documents import ReadOptions
from labelgrove.formats.files import (
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
from labelgrove.formats.pecos import find_pecos
from labelgrove.formats.xc import parse_header

FORMATS = {
    "jsonl": 'one JSON object per line: {"text": ..., "labels": [...], "id": ...}',
    "csv": "comma-separated columns with a header line; labels split at | or ;",
    "tsv": "tab-separated columns with a header line; labels split at | or ;",
    "parquet": "Parquet with text and labels columns (needs the extra data)",
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
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".txt": "text",
}
HEAD = 1 << 16
_SVMLIGHT = re.compile(rb"[ \t]*(\d+(,\d+)*)?([ \t]+\d+:[-+.\deE]+)+[ \t\r]*(#.*)?")
_PAIR = re.compile(rb"(^|\s)\d+:")


def detect_format(path: str | os.PathLike[str]) -> str:
    """Name of the format, a key of FORMATS; DataError where nothing fits.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_text("1 5 4\\n0,2 1:0.5 3:1.2\\n")
    ...     detect_format(file)
    'xc'
    """
    if str(path) == STDIN:
        return _by_content(STDIN) or "text"
    file = existing(path)
    return _of_folder(file) if file.is_dir() else _of_file(file)


def check_format(name: str) -> str:
    """The name, if it is one.

    >>> check_format("jsonl")
    'jsonl'
    """
    if name not in FORMATS:
        raise ConfigError(f"format: {name!r} is none of {', '.join(FORMATS)}")
    return name


def _of_folder(folder: Path) -> str:
    for part in ("train", "test", "valid"):
        options = ReadOptions(part=part)
        if find_pecos(folder, options):
            return "pecos"
        if find_pair(folder, options):
            return "attentionxml"
    if sibling(folder, "trn.json", "tst.json"):
        return "lf"
    if is_full_text_folder(folder):
        return "annif"
    raise DataError(
        "is a folder without train.jsonl, X.trn.* and Y.trn.npz, train_texts.txt and "
        "train_labels.txt, trn.json.gz, or .txt files with .tsv or .key beside them; name a file "
        "in it",
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
    # What a CSV's first line looks like says nothing; elsewhere content knows more than the name.
    if by_name in ("csv", "tsv", "parquet"):
        return by_name
    found = _by_content(file) or by_name
    if found is None:
        raise DataError(
            f"unknown kind of file; name the format (--format), one of {', '.join(FORMATS)}",
            file=file,
        )
    return found


def _by_content(path: Path | str) -> str | None:
    if str(path) == STDIN:
        # A look takes nothing away from who reads next, but it cannot see through compression.
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
    if parse_header(first) and (_PAIR.search(second) or not second.strip(b"0123456789, \t\r")):
        return "xc"
    if _SVMLIGHT.match(first):
        return "svmlight"
    if first.lstrip().startswith(b"[") and b"{" in head:
        raise DataError("is one JSON array; write one object per line instead", file=path)
    return None


def _has_target_numbers(line: bytes) -> bool:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        # The line may be longer than what was looked at; the field then stands in it somewhere.
        return b'"target_ind"' in line and b'"labels"' not in line
    return isinstance(record, dict) and "target_ind" in record and "labels" not in record
