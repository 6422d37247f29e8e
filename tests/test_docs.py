"""Every code block of the README and of docs/ runs: Python blocks and shell blocks, page by page.

Blocks of one page share a folder and a Python namespace and run in order. ``sh setup`` marks
commands that prepare a machine (clone, make, pip); CI itself starts with them, so they are not run
here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import Commands

ROOT = Path(__file__).parent.parent
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN_ONLY = {"", "text", "json", "toml", "ini", "jsonl", "sh setup"}


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    """PATH with a labelgrove that starts quickly."""
    with tempfile.TemporaryDirectory() as folder, Commands(Path(folder)):
        yield os.pathsep.join([folder, str(Path(sys.executable).parent), os.environ["PATH"]])


def run_shell(source: str, folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PATH": path,
        "PYTHONWARNINGS": "ignore",
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", source],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_quick_command_is_like_the_command(path: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "red hat", "labels": ["hats"]}\n')
    script = "labelgrove train a.jsonl --out model; cat a.jsonl | labelgrove predict model -"
    trained = run_shell(script, tmp_path, path)
    assert trained.returncode == 0 and '"hats"' in trained.stdout, trained.stderr
    refused = run_shell("labelgrove predict nowhere a.jsonl", tmp_path, path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "nowhere" in refused.stderr and "Traceback" not in refused.stderr
    assert run_shell("labelgrove train --no-such-flag", tmp_path, path).returncode == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_blocks_run(
    page: Path, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for kind, source in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind.strip() in SHOWN_ONLY:
            continue
        if kind.strip() == "bash":
            done = run_shell(source, tmp_path, path)
            assert done.returncode == 0, f"{source}\n{done.stdout}\n{done.stderr}"
        elif kind.strip() == "python":
            exec(compile(source, str(page), "exec"), namespace)
        else:
            pytest.fail(f"{page.name}: do not know how to run a {kind!r} block")


def anchors(page: Path) -> set[str]:
    """What the headings of a page can be linked by."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)")
    for page in PAGES:
        for target, anchor in link.findall(page.read_text(encoding="utf-8")):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name} links to {target}"
            if anchor and file.suffix == ".md":
                assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_the_numbers_of_which_method_are_those_of_the_results() -> None:
    docs = ROOT / "docs"
    measured = re.sub(r"[|/\s]+", " ", (docs / "results.md").read_text(encoding="utf-8"))
    measured += re.sub(r"[|/\s]+", " ", (docs / "neural.md").read_text(encoding="utf-8"))
    page = (docs / "which-method.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", page)
    assert len(rows) >= 10
    for row in rows:
        assert " ".join(row) in measured, f"{row} is neither in results.md nor in neural.md"


def test_every_page_is_listed_in_the_index() -> None:
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "README.md" or f"({name})" in listed, f"docs/README.md does not list {name}"
