"""JSON as model and run folders use it: plain values only, strict to read, safe to append to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labelgrove.errors import ConfigError, ModelFormatError


def plain(value: Any, where: str = "value") -> Any:
    """``value`` as JSON knows it, so that what is read back equals what is returned here.

    NumPy scalars become numbers and tuples lists; what JSON cannot hold is an error that says where
    it sits. NaN and infinity pass, as Python's JSON reads and writes them.

    >>> plain({"a": (1, 2)})
    {'a': [1, 2]}
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError(f"{where}: the key {key!r} must be a string to go into JSON")
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise ConfigError(
        f"{where}: a {type(value).__name__} cannot go into JSON; arrays belong to a part's arrays"
    )


def dump(value: Any, *, where: str = "value", indent: int | None = 1) -> bytes:
    """JSON text of plain values, ASCII only, so that any string survives.

    >>> dump([1, "é"], indent=None)
    b'[1, "\\\\u00e9"]'
    """
    return json.dumps(plain(value, where), indent=indent).encode("ascii")


def parse(content: bytes, *, file: str | Path) -> Any:
    """The value in a JSON file; whatever is wrong with it is a ModelFormatError naming the file.

    >>> parse(b'{"a": 1}', file="x.json")
    {'a': 1}
    """
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:  # bad UTF-8, bad JSON, huge numbers, deep nesting
        raise ModelFormatError(f"{file}: not valid JSON ({error})") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return result


def append_line(path: str | Path, record: Mapping[str, Any]) -> None:
    """Adds one record to a JSON-lines file; a line torn by a crash does not swallow the next one.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> append_line(file, {"step": 1}); append_line(file, {"step": 2})
    >>> file.read_text()
    '{"step": 1}\\n{"step": 2}\\n'
    """
    line = dump(record, where="log record", indent=None) + b"\n"
    with Path(path).open("ab+") as file:
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line)
