"""A small corpus on disk, a model trained on it, and a way to run the real command."""

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable

import pytest

from support.json_lines import write_jsonl

Run = Callable[..., subprocess.CompletedProcess[str]]

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
def run_process():
    """Runs the command in a process of its own, which costs a second or two."""

    def run_command(*arguments, check=True, stdin=None, cwd=None):
        done = subprocess.run(
            [sys.executable, "-m", "labelgrove", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            cwd=cwd,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run_command


@pytest.fixture(scope="session")
def run(run_process):
    """Runs the command in this process, unless it would limit this process's memory."""
    from labelgrove.cli import main

    def run_command(*arguments, check=True, stdin=None, cwd=None):
        if "--memory" in arguments:
            return run_process(*arguments, check=check, stdin=stdin, cwd=cwd)
        command = ["labelgrove", *map(str, arguments)]
        streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2)]
        given = io.TextIOWrapper(io.BytesIO((stdin or "").encode()), "utf-8")
        code = 0
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
        ):
            patch.setattr(sys, "argv", command)
            patch.setattr(sys, "stdin", given)
            if cwd is not None:
                patch.chdir(cwd)
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        texts = []
        for stream in streams:
            stream.flush()
            texts.append(stream.buffer.getvalue().decode())
        if check:
            assert code == 0, texts[1]
        return subprocess.CompletedProcess(command, code, *texts)

    return run_command


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
def call(call_both):
    """The same, without standard output."""

    def run(*arguments):
        code, _, said = call_both(*arguments)
        return code, said

    return run
