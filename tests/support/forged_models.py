"""Changes model folders at random, signs them again, and loads them; prints every raw error.

Run as a script, so that a crash does not take the tests with it: folder, first seed, last seed.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import labelgrove
from labelgrove.disk.tensors import read_tensors
from labelgrove.errors import LabelgroveError
from support.forging import forge_arrays, sign

VALUES = [
    None,
    -1,
    0,
    1,
    3,
    2**40,
    2**62,
    1e308,
    float("nan"),
    "x",
    "",
    [],
    [1],
    {},
    {"a": 1},
    True,
]
DTYPES = ["<f8", "<f4", "<f2", "<i8", "<i4", "|i1", "<u4", "|u1", "|b1"]


def change_settings(value: Any, draw: random.Random) -> Any:
    """The value with one of the values inside it, or all of it, replaced or removed."""
    changed = copy.deepcopy(value)
    place = changed
    for _ in range(draw.randint(0, 4)):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        inner = [key for key in keys if isinstance(place[key], (dict, list)) and place[key]]
        if not inner:
            break
        place = place[draw.choice(inner)]
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not keys:
        return draw.choice(VALUES)
    key = draw.choice(keys)
    if draw.random() < 0.3:
        del place[key]
    else:
        place[key] = draw.choice(VALUES)
    return changed


def change_array(array: Any, draw: random.Random) -> Any:
    kind = draw.choice(["none", "dtype", "short", "long", "shape", "value", "noise"])
    with np.errstate(all="ignore"):
        if kind == "none":
            return None
        if kind == "dtype":
            return array.astype(draw.choice(DTYPES))
        if kind == "short":
            return array[: draw.randint(0, len(array))] if array.ndim else array
        if kind == "long":
            return np.concatenate([array, array]) if array.ndim else array
        if kind == "shape":
            return array[None]
        changed = array.copy()
        if changed.size == 0:
            return changed
        if kind == "value":
            number = draw.choice([-1, 0, 1, 7, 127, 1e30, np.nan])
            changed.flat[draw.randrange(changed.size)] = np.array(number).astype(changed.dtype)
            return changed
        noise = np.random.default_rng(draw.randrange(1 << 30)).integers(-3, 9, changed.shape)
        return noise.astype(changed.dtype)


def forge(folder: Path, draw: random.Random) -> None:
    file = draw.choice(
        sorted(p for p in folder.rglob("*") if p.suffix in (".json", ".safetensors"))
    )
    part = file.relative_to(folder).with_suffix("").as_posix()
    if file.suffix == ".safetensors":
        arrays = read_tensors(file)
        name = draw.choice(sorted(arrays))
        forge_arrays(folder, part, {name: change_array(arrays[name], draw)})
        return
    content = json.loads(file.read_text())
    if file.name == "manifest.json":
        key = draw.choice(["params", "metadata", "parts", "method"])
        if isinstance(content[key], str) or draw.random() < 0.1:
            content[key] = draw.choice(VALUES)
        else:
            content[key] = change_settings(content[key], draw)
    else:
        content = change_settings(content, draw)
    file.write_text(json.dumps(content))
    sign(folder)


def main(model: Path, first: int, last: int) -> int:
    raw: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    for seed in range(first, last):
        draw = random.Random(seed)
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "model"
            shutil.copytree(model, folder)
            forge(folder, draw)
            stage = "load"
            try:
                loaded = labelgrove.load(folder)
                stage = "predict"
                loaded.predict(["a red hat", "blue lamp"], k=3, threads=1).names()
                answers["answered"] += 1
            except LabelgroveError as error:
                answers[type(error).__name__] += 1
            except Exception as error:
                raw[f"{stage}: {type(error).__name__}: {error!s:.150}"] += 1
                print(f"seed {seed}, {stage}: {type(error).__name__}: {error!s:.200}")
    print(dict(answers), f"{raw.total()} raw errors")
    return 1 if raw else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
