"""A small corpus on disk, a model trained on it, and a way to run the real command."""

import pytest

from support.json_lines import write_jsonl

COLOURS = ["red", "blue", "green", "black"]
THINGS = ["shoe", "hat", "lamp", "chair", "table"]


def documents(n, start=0):
    rows = []
    for number in range(start, start + n):
        colour, thing = COLOURS[number % 4], THINGS[number % 5]
        rows.append(
            {
                "id": f"doc{number}",
                "text": f"we sell this {colour} {thing}, item {number}",
                "labels": [f"c:{colour}", f"k:{thing}"],
            }
        )
    return rows


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """train.jsonl, dev.jsonl and the labels.tsv that names their labels."""
    path = tmp_path_factory.mktemp("corpus")
    write_jsonl(path / "train.jsonl", documents(100))
    write_jsonl(path / "dev.jsonl", documents(20, start=100))
    rows = [f"c:{colour}\t{colour} things" for colour in COLOURS]
    rows += [f"k:{thing}\t{thing}s" for thing in THINGS]
    (path / "labels.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(folder, run_process):
    run_process("train", folder / "train.jsonl", "--method", "linear", "--out", folder / "model")
    return folder / "model"


@pytest.fixture
def call(run):
    """The exit code, and what standard error says."""

    def call(*arguments):
        done = run(*arguments, check=False)
        return done.returncode, done.stderr

    return call
