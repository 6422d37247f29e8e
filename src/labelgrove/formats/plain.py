"""Plain text: one document per line, no labels; what ``predict`` reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from labelgrove.formats.documents import Document, ReadOptions, ReadReport
from labelgrove.formats.files import parse_lines


def iter_plain(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """A document per line; an empty line is a document too, so that answers stay in step."""
    return parse_lines(path, lambda line: Document(line, []), options, report, keep_blank=True)
