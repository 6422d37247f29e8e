"""Strategies that damage files where readers look: keys, types, shapes and indices."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

DEEP = 3_000  # deeper than Python recurses


class Raw(str):
    """JSON text to put in as it is."""


ODD_VALUES = (
    *(None, True, False, 0, -1, 1, 2, 7, 2**31, 2**32, -(2**63), 2**63, 10**30, 10**400),
    *(0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "a", "red", "nan", "-1", "\x00", "\ud800", "e\u0301", "x" * 5_000, "../../etc/passwd"),
    *([], [[]], [None], [0, 1], ["a", "a"], {}, {"a": 1}, {"": None}),
    Raw("[" * DEEP + "]" * DEEP),
    Raw("1" + "0" * 5_000),
)


def odd_values() -> st.SearchStrategy[Any]:
    return st.sampled_from(ODD_VALUES).map(copy.deepcopy)


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """JSON values with one to three places changed, removed, added or repeated."""
    changed = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(_places(changed) or [(None, None)]))
        if holder is None:
            return draw(odd_values())
        deed = draw(st.sampled_from(["replace", "replace", "remove", "add", "repeat", "nudge"]))
        if deed == "replace":
            holder[key] = draw(odd_values())
        elif deed == "remove":
            del holder[key]
        elif deed == "nudge" and type(holder[key]) in (int, float):
            holder[key] += draw(st.sampled_from([-1, 1, 1000]))
        elif isinstance(holder, list):
            holder.insert(key, holder[key] if deed == "repeat" else draw(odd_values()))
        else:
            holder[draw(st.sampled_from(["", "new", "kind", "labels"]))] = draw(odd_values())
    return changed


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in nested JSON values."""
    places = []
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            places += [(value, key), *_places(value[key])]
    return places


def json_text(value: Any) -> str:
    """JSON, with raw text where the value has it."""
    raw: list[str] = []

    def marked(item: Any) -> Any:
        if isinstance(item, Raw):
            raw.append(item)
            return f"\x01{len(raw) - 1}\x01"
        if isinstance(item, Mapping):
            return {key: marked(part) for key, part in item.items()}
        return [marked(part) for part in item] if isinstance(item, list) else item

    text = json.dumps(marked(value))
    for number, part in enumerate(raw):
        text = text.replace(f'"\\u0001{number}\\u0001"', part)
    return text


DTYPES = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")


@st.composite
def mutated_array(draw: st.DrawFn, array: np.ndarray) -> np.ndarray | None:
    """The array with another type, shape, length, order or some odd items; None: without it."""
    deeds = ("items", "items", "items", "type", "shorter", "longer", "shape", "order", "none")
    changed: Any = array.copy()
    for _ in range(draw(st.integers(1, 2))):
        deed = draw(st.sampled_from(deeds))
        if deed == "none":
            return None
        if deed == "type":
            with np.errstate(all="ignore"):
                changed = changed.astype(draw(st.sampled_from(DTYPES)))
        elif deed == "shorter":
            changed = changed[: draw(st.integers(0, len(changed)))] if changed.ndim else changed
        elif deed == "longer":
            changed = np.concatenate([np.atleast_1d(changed)] * 2)
        elif deed == "shape":
            shapes = [(-1,), (1, -1), (-1, 1), (1, 1, -1)]
            changed = changed.reshape(draw(st.sampled_from(shapes)))
        elif deed == "order":
            changed = np.ascontiguousarray(np.flip(changed))
        elif changed.size:
            _put_odd_items(draw, changed)
    return changed


def _put_odd_items(draw: st.DrawFn, array: np.ndarray) -> None:
    kind = array.dtype.kind
    odd: list[Any] = [True, False]
    if kind in "iu":
        bounds = np.iinfo(array.dtype)
        odd = [0, 1, bounds.min, bounds.max, array.size % (bounds.max + 1), bounds.max // 2]
    elif kind == "f":
        odd = [0.0, -1.0, np.nan, np.inf, -np.inf, float(np.finfo(array.dtype).max)]
    for _ in range(draw(st.integers(1, 3))):
        array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(odd))


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """The content cut off, or with a few bytes changed, put in or taken out."""
    data = bytearray(content)
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(data)
