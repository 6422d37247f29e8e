"""Files of every kind that we read, damaged at random: a seed each, thousands in one process."""

from __future__ import annotations

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

from labelgrove.disk.bundle import MANIFEST
from support.forged_models import change_settings, forge

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # by native/check.sh attack
MEMORY = 4000.0 if SANITIZED else 1000.0  # megabytes, with all libraries
ADDRESSES = 1 << 48 if SANITIZED else 4 << 30  # allocators reserve much more than they use
SKOS = "http://www.w3.org/2004/02/skos/core#"
LINKED = {
    "@context": {"s": SKOS},
    "@graph": [{"@id": "x:1", "@type": "s:Concept", "s:prefLabel": {"@value": "cats"}}],
}
ANNIF = {
    "projects.cfg": "[DEFAULT]\nlanguage=en\n[a]\nvocab=v(en,exclude=x:1)\nbackend=svc\n"
    "name=%(language)s\n",
    "projects.toml": '[a]\nvocab = "v(en)"\nbackend = "labelgrove"\nconfig = "a.toml"\n',
    "things.rdf": f"""<!DOCTYPE r [<!ENTITY ex "x:">]>
<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:s="{SKOS}">
<s:Concept r:about="&ex;1"><s:prefLabel xml:lang="en">cats</s:prefLabel></s:Concept></r:RDF>""",
    "things.ttl": f'<x:1> a <{SKOS}Concept> ; <{SKOS}prefLabel> "cats"@en, """tea""" .\n',
    "things.nt": f'<x:1> <{SKOS}prefLabel> "cats"@en .\n',
    "things.jsonld": json.dumps(LINKED),
    "things.csv": "uri,notation,label_en,label_de\n<x:1>,,cats,Katzen\n",
    "things.tsv": "<x:1>\tcats\n",
}
ROW = {"text": "a red hat", "labels": ["red", "hats"], "id": "7", "weights": [1, 0.5]}
LF_ROW = {"title": "a", "content": "c", "target_ind": [0, 7], "target_rel": [1.0, 2], "uid": "3"}
ANSWER = {"id": "7", "labels": ["red", "hats"], "label_ids": ["0", "1"], "scores": [0.5, 0.25]}
TREE = {"red": ["hats", "shoes"], "blue": []}
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
    "answers.jsonl": (json.dumps(ANSWER) + "\n", "evaluate_file", ("corpus.jsonl",)),
    "labels.json": (json.dumps(TREE), "read_label_file", ()),
    "labels.tsv": ("id\tname\tparent\n0\tred\thats\n1\tblue\thats\n", "read_label_file", ()),
    "feedback.jsonl": (json.dumps(FEEDBACK) + "\n", "read_feedback_file", ()),
    **{name: (content, "read_annif_file", ()) for name, content in ANNIF.items()},
}
TOKENS = (
    *(b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"nan", b"-1", b"1e999", b"9" * 25, b"0x", b"[", b"{"),
    *(
        b"]",
        b"\n",
        b"\r",
        b"\t",
        b'"',
        b"\\",
        b"\\ud800",
        b"null",
        b"{}",
        b",",
        b"%(",
        b"&a;",
        b"<",
    ),
    b"[" * 3_000,
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
        with redirect_stdout(io.StringIO()):
            refused += bool(getattr(tasks, task)(str(copy), *rest).get("refused"))
    return {"refused": refused}
