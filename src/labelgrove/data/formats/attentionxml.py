"""Folders of AttentionXML and LightXML: one line of text and one line of labels per document.

``train_texts.txt`` and ``train_labels.txt`` (labels separated by spaces), the same for ``test``. If
there is a ``train_raw_texts.txt``, the texts before cleaning, it is used instead. Without a file
of labels, those of the repository file ``train.txt`` (or ``train_v1.txt``) are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

from labelgrove.data.formats import files
from labelgrove.data.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import decode, folder_and_parts, lines, sibling
from labelgrove.data.formats.xc import find_repository_file, parse_header
from labelgrove.errors import DataError

_TEXT_FILE = re.compile(r"(?P<part>\w+?)_(raw_)?texts\.txt")


def find_pair(path: Path, options: ReadOptions) -> tuple[Path, Path] | None:
    """The text file and the label file of a folder or of a text file, if both exist."""
    folder, parts = folder_and_parts(path, options, _TEXT_FILE)
    for part in parts:
        texts: Path | None = path
        if folder == path:
            texts = sibling(path, f"{part}_raw_texts.txt", f"{part}_texts.txt")
        labels = sibling(folder, f"{part}_labels.txt") or find_repository_file(folder, part)
        if texts and labels:
            return texts, labels
    return None


def _label_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """A line of labels with spaces between them per document, also out of a repository file."""
    numbered = lines(path)
    if path.name.partition(".")[0].endswith("_labels"):
        yield from numbered
        return
    first = next(numbered, None)
    if first is not None and parse_header(first[1]) is None:
        numbered = chain([first], numbered)
    for number, line in numbered:
        labels = line.split(None, 1)[0] if line[:1].isdigit() else b""
        yield number, b"" if b":" in labels else labels.replace(b",", b" ")


def iter_attentionxml(
    path: Path | str, options: ReadOptions, report: ReadReport
) -> Iterator[Document]:
    """The documents of one part; a document is bad if its line in either file is."""
    pair = find_pair(Path(path), options)
    if pair is None:
        raise DataError(
            f"there is no {options.part}_texts.txt with {options.part}_labels.txt; "
            "set the part, or give the path of the text file",
            file=path,
        )
    text_file, label_file = pair
    encoding = files.check_encoding(options.encoding)
    for text_line, label_line in zip_longest(lines(text_file), _label_lines(label_file)):
        if text_line is None or label_line is None:
            short, long = (text_file, label_file) if text_line is None else (label_file, text_file)
            number = (text_line or label_line)[0]
            raise DataError(f"has {number - 1} lines, but {long.name} has more", file=short)
        number, raw_text = text_line
        where = text_file
        try:
            text = decode(raw_text, encoding)
            where = label_file
            labels = decode(label_line[1], encoding).split()
        except BadLine as error:
            files.refuse(DataError(str(error), file=where, line=number), options, report)
            continue
        yield Document(text, labels)
