"""JSON in model and run folders: plain values only, read strictly, safe to append to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from labelgrove.errors import ConfigError, ModelFormatError

JsonObject: TypeAlias = dict[str, Any]  # of plain values


def unboxed(value: Any) -> Any:
    """A NumPy scalar as a Python number; other values as they are. Does not load NumPy."""
    scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0
    return value.item() if scalar else value


def plain(value: Any, where: str = "value") -> Any:
    """``value`` as JSON values; reading them back gives exactly the value returned here.

    NumPy scalars become numbers and tuples become lists. Anything that JSON cannot hold is an error
    that names the path to it. NaN and infinity pass: Python's JSON reads and writes them.
    """
    value = unboxed(value)
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
    """JSON text of plain values, ASCII only, so that any string survives."""
    return json.dumps(plain(value, where), indent=indent).encode("ascii")


def parse(content: bytes, *, file: str | Path) -> Any:
    """The value in a JSON file; invalid JSON is a ModelFormatError that names the file."""
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
    """Adds one record to a JSON-lines file; a line cut off by a crash does not spoil the next."""
    line = dump(record, where="log record", indent=None) + b"\n"
    with Path(path).open("ab+") as file:
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line)
