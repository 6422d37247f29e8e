"""A JSON array of objects, as ``df.to_json(orient="records")`` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from labelgrove.data.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import (
    READ_ERRORS,
    check_encoding,
    damaged,
    decode,
    open_bytes,
    refuse,
)
from labelgrove.data.formats.jsonl import as_object, record_parser
from labelgrove.errors import DataError

_SPACE = " \t\r\n"


def iter_json_array(
    path: Path | str, options: ReadOptions, report: ReadReport
) -> Iterator[Document]:
    """The documents of a JSON array; the file's text is in memory, the objects one at a time."""
    encoding = check_encoding(options.encoding)
    with open_bytes(path) as stream:
        try:
            raw = stream.read()
        except READ_ERRORS as error:
            raise damaged(error, path) from error
    try:
        text = decode(raw.removeprefix(b"\xef\xbb\xbf"), encoding)
    except BadLine as error:
        raise DataError(str(error), file=path) from error
    del raw
    parse = record_parser(options, report)
    decoder = json.JSONDecoder()
    place, line, counted = _skip(text, 0), 1, 0
    if text[place : place + 1] != "[":
        raise DataError("is not a JSON array", file=path)
    place = _skip(text, place + 1)
    while text[place : place + 1] != "]":
        line, counted = line + text.count("\n", counted, place), place
        try:
            value, end = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise DataError(f"not valid JSON: {error.msg}", file=path, line=error.lineno) from None
        except (ValueError, RecursionError) as error:  # too many digits, or nested too deeply
            raise DataError(f"not valid JSON: {error}", file=path, line=line) from None
        try:
            yield parse(as_object(value, "every element"))
        except BadLine as error:
            refuse(DataError(str(error), file=path, line=line), options, report)
        place = _skip(text, end)
        if text[place : place + 1] == ",":
            place = _skip(text, place + 1)
        elif text[place : place + 1] != "]":
            raise DataError("not valid JSON: a comma or ] is missing", file=path, line=line)
    if _skip(text, place + 1) < len(text):
        raise DataError("something follows the JSON array", file=path)


def _skip(text: str, place: int) -> int:
    while place < len(text) and text[place] in _SPACE:
        place += 1
    return place
