"""What the children of support.zygote do. A task returns facts, or ends as the user sees it."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

from labelgrove import cli

last_error: str | None = None


def command(*arguments: str) -> None:
    """The command line, as the user calls it."""
    global last_error
    real = cli.app

    def app() -> None:
        global last_error
        try:
            real()
        except Exception as error:
            last_error = type(error).__name__
            raise

    cli.app = app  # type: ignore[assignment]
    sys.argv = ["labelgrove", *arguments]
    cli.main()


def import_everything(flavour: str) -> None:
    """Runs each command once, here: most imports are inside functions."""
    for command_line in commands(flavour):
        sys.argv = ["labelgrove", *command_line]
        with contextlib.redirect_stderr(io.TextIOWrapper(io.BytesIO())) as stderr:
            try:
                cli.main()
            except SystemExit as end:
                stderr.seek(0)
                assert not end.code, stderr.read()


DOCUMENTS = [
    ("red running shoes", ["shoes", "red", "sport"]),
    ("blue running shoes for men", ["shoes", "blue", "sport"]),
    ("a warm red hat", ["hats", "red", "winter"]),
    ("a blue winter hat", ["hats", "blue", "winter"]),
    ("green gloves for the winter", ["gloves", "green", "winter"]),
    ("red gloves", ["gloves", "red"]),
    ("green sport hat", ["hats", "green", "sport"]),
    ("a green coat", ["coats", "green"]),
]


def write_corpora(folder: Path) -> None:
    """train.jsonl, dev.jsonl, new.jsonl (with a new label) and texts.txt."""
    rows = [
        {"text": f"{text} {n}", "labels": labels} for n in range(5) for text, labels in DOCUMENTS
    ]
    new = [{"text": f"yellow scarf {n}", "labels": ["scarves", "winter"]} for n in range(4)]
    for name, part in (("train", rows[:32]), ("dev", rows[16:]), ("new", new)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    (folder / "texts.txt").write_text("".join(f"{row['text']}\n" for row in rows))


TRAIN = ["train", "train.jsonl", "--dev", "dev.jsonl", "--no-estimate", "--out"]
TUNE = ["tune", "train.jsonl", "--dev", "dev.jsonl", "--trials", "2", "--out", "tuned.toml"]


def commands(flavour: str) -> list[list[str]]:
    write_corpora(Path())
    return [
        [*TRAIN, "warm"],
        ["update", "warm", "--data", "new.jsonl", "--corpus", "train.jsonl", "--out", "more"],
        ["calibrate", "warm", "--data", "dev.jsonl"],
        ["predict", "warm", "texts.txt", "--out", "warm.jsonl.gz"],
        TUNE,
    ]
