"""Files of every kind that we read, damaged at random: a seed each, thousands in one process."""

from __future__ import annotations

import copy as copying
import io
import json
import os
import random
import shutil
import signal
import sys
import zipfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.disk.bundle import MANIFEST
from labelgrove.disk.tensors import read_tensors
from labelgrove.errors import LabelgroveError
from support.forging import forge_arrays, sign

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # by native/check.sh attack
MEMORY = 4000.0 if SANITIZED else 1000.0  # megabytes, with all libraries
ADDRESSES = 1 << 48 if SANITIZED else 4 << 30  # allocators reserve much more than they use
ANNIF = {
    "projects.cfg": "[DEFAULT]\nlanguage=en\n[a]\nvocab=v(en,exclude=x:1)\nbackend=svc\n",
    "projects.toml": '[a]\nvocab = "v(en)"\nbackend = "labelgrove"\nconfig = "a.toml"\n',
    "things.csv": "uri,notation,label_en,label_de\n<x:1>,,cats,Katzen\n",
    "things.tsv": "<x:1>\tcats\n",
}
ROW = {"text": "a red hat", "labels": ["red", "hats"], "id": "7", "weights": [1, 0.5]}
LF_ROW = {"title": "a", "content": "c", "target_ind": [0, 7], "target_rel": [1.0, 2], "uid": "3"}
ANSWER = {"id": "7", "labels": ["red", "hats"], "label_ids": ["0", "1"], "scores": [0.5, 0.25]}
FEEDBACK = {
    "time": "2026-03-01T23:30:00-02:00",
    "text": "a red hat",
    "labels": ["hats"],
    "suggestions": [{"id": "hats", "score": 0.9}, {"id": "red", "score": 0.6}],
    "threshold": 0.5,
    "names": {"hats": "Hats"},
}
# The content of a file, the task of support.tasks that reads it, and what else that is told.
TEXTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "rows.jsonl": (json.dumps(ROW) + "\n", "read_file", ("jsonl",)),
    "rows.json": (json.dumps([ROW, ROW]), "read_file", ("json",)),
    "lf.jsonl": (json.dumps(LF_ROW) + "\n", "read_file", ("lf",)),
    "table.csv": ('text,labels,id\n"a ""b""\nc",d|e,4\nf,[1],\n', "read_file", ("csv",)),
    "table.tsv": ("text\tlabels\na\tb;c\n", "read_file", ("tsv",)),
    "xc.txt": ("2 5 4\n0,2 1:0.5 3:1.2\n1 0:1e-3\n", "read_file", ("xc",)),
    "svm.txt": ("0,2 1:0.5 3:1.2\n1 0:1e-3 # x\n", "read_file", ("svmlight",)),
    "annif.tsv": ("a text\t<http://a.org/b> <http://a.org/c>\nd\te\n", "read_file", ("annif",)),
    "plain.txt": ("one\ntwo\r\n", "read_file", ("text",)),
    "answers.jsonl": (json.dumps(ANSWER) + "\n", "evaluate_file", ("corpus.jsonl",)),
    "labels.tsv": ("id\tname\tparent\n0\tred\thats\n1\tblue\thats\n", "read_label_file", ()),
    "feedback.jsonl": (json.dumps(FEEDBACK) + "\n", "read_feedback_file", ()),
    **{name: (content, "read_annif_file", ()) for name, content in ANNIF.items()},
}
TOKENS = (
    *(b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"nan", b"-1", b"1e999", b"9" * 25, b"0x", b"[", b"{"),
    *(b"]", b"\n", b"\r", b"\t", b'"', b"\\", b"\\ud800", b"null", b"{}", b",", b"%(", b"&a;"),
    *(b"<", b"[" * 3_000),
)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with one to three places cut, repeated, or replaced by noise or a token."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        place = draw.randint(0, len(data))
        end = place + draw.choice([0, 1, 1, 2, 8])
        kind = draw.randrange(8)
        if kind == 0:
            del data[place:]
        elif kind == 1:
            data[place:place] = data[draw.randint(0, len(data)) :][: draw.randint(1, 40)]
        elif kind <= 3:
            data[place:end] = draw.randbytes(draw.randint(0, 4))
        else:
            data[place:end] = draw.choice(TOKENS)
    return bytes(data)


def damage(sample: Path, copy: Path, draw: random.Random) -> None:
    """Writes a damaged copy of a model folder, a folder, an archive, JSON or any other file."""
    if sample.is_dir():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(sample, copy)
        if (copy / MANIFEST).exists():
            forge(copy, draw)
        else:
            name = draw.choice(sorted(file.name for file in sample.iterdir()))
            damage(sample / name, copy / name, draw)
        return
    content = sample.read_bytes()
    if sample.suffix == ".npz" and draw.random() < 0.5:
        arrays = dict(np.load(sample))
        chosen = draw.choice(sorted(arrays.keys() - {"format"}))
        arrays[chosen] = change_array(arrays[chosen], draw)
        np.savez(copy, **{name: array for name, array in arrays.items() if array is not None})
        return
    if zipfile.is_zipfile(sample) and draw.random() < 0.7:
        with zipfile.ZipFile(sample) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        chosen = draw.choice(sorted(entries))
        entries[chosen] = damaged(entries[chosen], draw)
        with zipfile.ZipFile(copy, "w") as archive:
            for name, entry in entries.items():
                archive.writestr(name, entry)
        return
    if sample.suffix.startswith(".json") and draw.random() < 0.5:
        rows: list[Any] = [json.loads(content)]
        rows += [change_settings(rows[0], draw) for _ in range(draw.randint(1, 2))]
        first = 1 if sample.suffix != ".jsonl" else draw.randint(0, 1)
        last = None if sample.suffix == ".jsonl" else 2
        content = b"\n".join(json.dumps(row).encode() for row in rows[first:last])
    else:
        content = damaged(content, draw)
    copy.write_bytes(content)


def read_damaged(first: int, last: int, hang: int, task: str, sample: str, *rest: str) -> Any:
    """Reads a copy per seed. Standard error ends with the seed that was read last."""
    from support import tasks

    refused, path = 0, Path(sample)
    (path.parent / "copies").mkdir(exist_ok=True)
    for seed in range(first, last):
        print("seed", seed, file=sys.stderr, flush=True)
        signal.alarm(hang)
        copy = path.parent / "copies" / path.name
        damage(path, copy, random.Random(seed))
        try:
            with redirect_stdout(io.StringIO()):
                facts = getattr(tasks, task)(str(copy), *rest)
            refused += bool(facts and facts["refused"])
        except LabelgroveError:
            refused += 1
    return {"refused": refused}


VALUES: list[Any] = [None, True, -1, 0, 1, 3, 2**31, 2**40, 2**62, -(2**63), 10**400, 1e308]
VALUES += [float("nan"), float("inf"), -0.0, "", "x", "\x00", "\ud800", "e\u0301", "x" * 5_000]
VALUES += ["../../etc/passwd", [], [[]], [1], [None], ["a", "a"], {}, {"a": 1}, {"": None}]
DTYPES = ["<f8", "<f4", "<f2", "<i8", "<i4", "|i1", "<u4", "|u1", "|b1"]


def change_settings(value: Any, draw: random.Random) -> Any:
    """The value with one of the values inside it, or all of it, replaced or removed."""
    changed = copying.deepcopy(value)
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
            number = draw.choice([-1, 0, 1, 7, 127, 2**31 - 1, 2**62, 1e30, np.nan, np.inf])
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
