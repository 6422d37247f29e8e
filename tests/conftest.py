"""Settings of the whole suite: threads, hypothesis profiles, and which tests run when."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

Run = Callable[..., subprocess.CompletedProcess[str]]

# The tests share the cores among processes, so torch and BLAS get one thread each, here and in the
# processes that tests start. They read this when they are imported.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Shells let what they start in the background ignore Ctrl-C, and so would all commands of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# HYPOTHESIS_PROFILE chooses: `quick` for `make quick`, `ci` (the default), where the same examples
# come every time, `thorough`, which looks for new ones, and `attack` for `make attack`, which looks
# for new ones until its time is up. No profile has a deadline.
FACTORS = {"quick": 0.1, "ci": 1.0, "thorough": 10.0, "attack": 1.0}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
for name, factor in FACTORS.items():
    settings.register_profile(
        name, deadline=None, derandomize=name in ("quick", "ci"), max_examples=int(100 * factor)
    )
settings.load_profile(PROFILE)

SLOW_FILE = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.slow\b", re.MULTILINE)
# Marks of tests that only `make test-ray` and `make attack` run, and what these set.
LONG = {"long_ray": "LABELGROVE_TEST_RAY", "long_attack": "LABELGROVE_ATTACK"}


def is_slow(path: Path) -> bool:
    """Whether all tests of a file are slow: browsers, servers, processes, docs, networks."""
    return path.suffix == ".py" and SLOW_FILE.search(path.read_text("utf-8")) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-pages", action="store_true", help="rewrite docs and fixtures")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``-m "not slow"`` does not even import what only slow tests need."""
    return True if config.option.markexpr == "not slow" and is_slow(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    absent = [mark for mark, variable in LONG.items() if variable not in os.environ]
    long = [item for item in items if any(map(item.get_closest_marker, absent))]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]
    for item in items:
        _scale_examples(item)


def _scale_examples(item: pytest.Item) -> None:
    """Tests that name a number of examples follow the profile as well."""
    function = getattr(item, "obj", None)
    own = getattr(function, "_hypothesis_internal_use_settings", None)
    if own is not None and own.max_examples != settings.default.max_examples:
        key = (item.path, item.originalname)  # parametrized tests share one function
        examples = _NAMED.setdefault(key, own.max_examples)
        number = max(5, int(examples * FACTORS.get(PROFILE, 1.0)))
        function._hypothesis_internal_use_settings = settings(own, max_examples=number)


_NAMED: dict[tuple[Path, str], int] = {}


def agree(found: object, pinned: object, near: float) -> bool:
    """Whether two values of JSON are the same, but that numbers may differ by a share."""
    if isinstance(found, float) and isinstance(pinned, int | float):
        return math.isclose(found, pinned, rel_tol=near, abs_tol=near / 10)
    if isinstance(found, dict) and isinstance(pinned, dict):
        return found.keys() == pinned.keys() and all(
            agree(found[k], pinned[k], near) for k in found
        )
    if isinstance(found, list) and isinstance(pinned, list) and len(found) == len(pinned):
        return all(agree(*pair, near) for pair in zip(found, pinned, strict=True))
    return found == pinned


@pytest.fixture
def pinned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Compares values with a JSON file in fixtures, which shows what a change changes."""
    if "torch" in sys.modules:  # networks that read in bfloat16 give other numbers
        monkeypatch.setattr("torch.cpu._is_amx_tile_supported", bool, raising=False)

    def compare(name: str, found: object, near: float = 0.0) -> None:
        text = json.dumps(found, indent=1, default=lambda row: [round(float(x), 6) for x in row])
        if near and isinstance(found, dict):  # many numbers: a line per value
            lines = (f"{json.dumps(key)}: {json.dumps(found[key])}" for key in found)
            text = "{" + ",\n ".join(lines) + "}"
        file = Path(__file__).parent / "fixtures" / f"{name}.json"
        if request.config.getoption("--update-pages"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text + "\n", encoding="utf-8")
        now, before = json.loads(text), json.loads(file.read_text(encoding="utf-8"))
        if near and isinstance(now, dict):
            changed = [
                key for key in now | before if not agree(now.get(key), before.get(key), near)
            ]
            now, before = ({key: value.get(key) for key in changed} for value in (now, before))
        assert now == before

    return compare


@pytest.fixture(scope="session")
def run_process() -> Run:
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
def run(run_process: Run) -> Run:
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


@pytest.fixture
def call_both(run: Run) -> Callable[..., tuple[int, str, str]]:
    """Exit code, standard output, standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        done = run(*arguments, check=False)
        return done.returncode, done.stdout, done.stderr

    return call
