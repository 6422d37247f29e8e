"""Annif's corpora: short texts in one TSV file, or a folder with one file per full text.

A line of the file is a text, a tab, and URIs separated by spaces, usually in angle brackets; there
is no header line. In a folder, the subjects of ``a.txt`` are in ``a.tsv`` (per line a URI in angle
brackets, a tab and a name) or in ``a.key`` (one name per line).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from labelgrove.data.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import check_encoding, decode, lines, parse_lines, refuse
from labelgrove.errors import DataError

FILES_LOOKED_AT = 100  # to decide whether a folder has texts with subjects
_LINE = re.compile(rb"[^\t]*\t<[^<>\s]+>([ \t]+<[^<>\s]+>)*[ \t\r]*")


def looks_like_annif(first_line: bytes) -> bool:
    """Whether the first line of a TSV file is a text with URIs in angle brackets, not a header."""
    return _LINE.fullmatch(first_line) is not None


def is_full_text_folder(folder: Path) -> bool:
    """Whether the folder has texts with a file of subjects."""
    return any(_subject_file(text) for text in islice(folder.glob("*.txt"), FILES_LOOKED_AT))


def iter_annif(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a file, or of a folder in the order of the files' names."""
    if Path(path).is_dir():
        return _texts(Path(path), options, report)
    return parse_lines(path, _parse_line, options, report)


def without_brackets(label: str) -> str:
    """A URI without its angle brackets; anything else unchanged."""
    is_uri = label.startswith("<") and label.endswith(">") and ":" in label
    return label[1:-1] if is_uri else label


def _parse_line(line: str) -> Document:
    text, tab, uris = line.partition("\t")
    if not tab:
        raise BadLine("there is no tab between the text and the URIs of its subjects")
    return Document(text, [without_brackets(uri) for uri in uris.split()])


def _texts(folder: Path, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    encoding = check_encoding(options.encoding)
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise DataError("this folder has no .txt files", file=folder)
    for file in files:
        subjects = _subject_file(file)
        where = file
        try:
            text = "\n".join(decode(raw, encoding) for _, raw in lines(file))
            labels = []
            if subjects is not None:
                where = subjects
                labels = [decode(raw, encoding) for _, raw in lines(subjects)]
        except BadLine as error:
            refuse(DataError(str(error), file=where), options, report)
            continue
        labels = [without_brackets(line.partition("\t")[0].strip()) for line in labels]
        yield Document(text, [label for label in labels if label], file.stem)


def _subject_file(text: Path) -> Path | None:
    files = (text.with_suffix(suffix) for suffix in (".tsv", ".key"))
    return next((file for file in files if file.is_file()), None)
