"""Code blocks of the README and of docs/ run, and outputs that the pages show are what is printed.

Blocks of one page share a folder and a Python namespace and run in order. ``support/pages.py`` says
how outputs are compared. ``pytest tests/test_docs.py --update-pages`` rewrites those that differ.
"""

import contextlib
import difflib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from labelgrove.methods import create
from labelgrove.methods.updating.report import GrowthParams
from labelgrove.serve.settings import ServeParams
from support.commands import Commands
from support.pages import BLOCK, WIDTH, refreshed

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
# Such as | `towers.positives`, `towers.negatives` | labels of a document, and near ones (4, 4) |
SETTINGS = re.compile(r"^\| (`[\w.`, ]+`) \| (?:[^|\n]*\()?([\d.]+(?:,? ?[\d.]+)*)(?:\)| \|)", re.M)
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
# Printed before every command of a block, to where the block prints.
MARK = "\x1e"
MARKED = f"exec 3>&1; trap 'printf {MARK} >&3' DEBUG\n"


@pytest.fixture(scope="module")
def path():
    """PATH with a labelgrove that starts quickly."""
    with tempfile.TemporaryDirectory() as folder, Commands(Path(folder)):
        yield os.pathsep.join([folder, str(Path(sys.executable).parent), os.environ["PATH"]])


def run_shell(source, folder, path, stderr=subprocess.PIPE):
    environment = os.environ | {
        "PATH": path,
        "PYTHONWARNINGS": "ignore",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": str(WIDTH),
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", source],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=240,
        check=False,
    )


def test_tables_show_the_defaults_of_settings():
    known = vars(ServeParams()) | vars(GrowthParams())
    for method in ("matcher", "dual", "neighbours", "xtransformer"):
        pytest.importorskip("torch")
        named = create(method, {}).get_params().items()
        known |= {name.replace("__", "."): value for name, value in named}
    shown = [
        (name, value, known[name])
        for page in PAGES
        for names, values in SETTINGS.findall(page.read_text(encoding="utf-8"))
        for name, value in zip(re.findall(r"[\w.]+", names), values.split(", "), strict=False)
        if "." in name or (page.stem in ("service", "growing") and name in known)
    ]
    assert len(shown) > 30
    assert all(float(value.replace(",", "")) == default for _, value, default in shown), shown


def test_the_quick_command_is_like_the_command(path, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "red hat", "labels": ["hats"]}\n')
    script = "labelgrove train a.jsonl --out model; cat a.jsonl | labelgrove predict model -"
    trained = run_shell(script, tmp_path, path)
    assert trained.returncode == 0 and '"hats"' in trained.stdout, trained.stderr
    refused = run_shell("labelgrove predict nowhere a.jsonl", tmp_path, path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "nowhere" in refused.stderr and "Traceback" not in refused.stderr
    assert run_shell("labelgrove train --no-such-flag", tmp_path, path).returncode == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_and_print_what_the_page_shows(page, path, tmp_path, request):
    namespace = {"__name__": "__main__"}

    def run(language, source):
        if language == "bash":
            done = run_shell(MARKED + source, tmp_path, path, stderr=subprocess.STDOUT)
            assert done.returncode == 0, f"{source}\n{done.stdout}"
            return done.stdout.split(MARK)
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(source, str(page), "exec"), namespace)
            return [output.getvalue()]
        return None

    text = page.read_text(encoding="utf-8")
    with contextlib.chdir(tmp_path):
        true = refreshed(text, run)
    if request.config.getoption("--update-pages"):
        page.write_text(true, encoding="utf-8")
        return
    changes = difflib.unified_diff(text.splitlines(), true.splitlines(), "shown", "printed", n=1)
    assert true == text, "\n".join(["--update-pages would write this:", *changes])


def anchors(page):
    """What the headings of a page can be linked by."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere():
    link = re.compile(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)")
    for page in PAGES:
        for target, anchor in link.findall(page.read_text(encoding="utf-8")):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name} links to {target}"
            if anchor and file.suffix == ".md":
                assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_the_tests_that_pages_name_exist():
    for page in PAGES:
        for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text("utf-8")):
            assert f"def {name}" in (ROOT / file).read_text("utf-8"), f"{page.name}: {file}::{name}"


def test_the_numbers_of_which_method_are_those_of_the_results():
    docs = ROOT / "docs"
    measured = re.sub(r"[|/\s]+", " ", (docs / "results.md").read_text(encoding="utf-8"))
    measured += re.sub(r"[|/\s]+", " ", (docs / "neural.md").read_text(encoding="utf-8"))
    page = (docs / "which-method.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", page)
    assert len(rows) >= 10
    for row in rows:
        assert " ".join(row) in measured, f"{row} is neither in results.md nor in neural.md"


def test_every_page_is_listed_in_the_index():
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "README.md" or f"({name})" in listed, f"docs/README.md does not list {name}"
