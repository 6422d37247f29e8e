"""Builds the documentation site: ``make docs``, or ``python docs/site/build.py [FOLDER]``.

The Markdown of docs/ is written to be read in the repository. It is staged with links that fit the
site, the notebooks are executed and become pages, docs/README.md becomes the front page and the
navigation, and the API reference is made from docstrings. Nothing is loaded from other hosts, at
build time or later.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DOCS = HERE.parent
ROOT = DOCS.parent
TOP = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
# The rooms of the package that have a page; `labelgrove` itself is all that most people need.
ROOMS = {
    "labelgrove.evaluation.metrics": "Metrics",
    "labelgrove.experiments.report": "Reports",
    "labelgrove.data.formats": "Files",
    "labelgrove.evaluation.calibration": "Calibration",
    "labelgrove.errors": "Errors",
}
GROUPS = {
    "Models": (
        *("Auto", "Linear", "LinearVectors", "Neighbours", "Matcher", "XTransformer"),
        *("XRTransformer", "LightXML", "CascadeXML", "Dual", "Ensemble", "load", "from_pretrained"),
    ),
    "Data": ("Corpus", "LabelIndex", "Documents", "Features", "records", "read_corpus"),
    "Results": ("Predictions", "evaluate", "scorer", "write_report", "calibrate", "LabelMask"),
}


def stage(source: Path, *, execute: bool = True) -> None:
    """Writes everything that Sphinx reads into a folder."""
    pages = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in TOP)]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        if page == DOCS / "README.md":
            text += "\n" + navigation()
        target = source / staged(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_links(text, page), encoding="utf-8")
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        cells = executed(notebook) if execute else json.loads(notebook.read_text())["cells"]
        target = source / staged(notebook)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(cell_text(cell) for cell in cells)
        text += f"\nDownload {{download}}`this notebook <{notebook.name}>`.\n"
        target.write_text(with_links(text, notebook), encoding="utf-8")
        shutil.copy(notebook, target.parent)
    shutil.copytree(DOCS / "images", source / "images", ignore=shutil.ignore_patterns("*.py"))
    shutil.copytree(HERE, source / "_static", ignore=shutil.ignore_patterns("*.py"))
    shutil.copy(ROOT / "src/labelgrove/serve/page/icon.svg", source / "_static")
    shutil.copy(HERE / "conf.py", source)
    write_reference(source / "api")


def staged(file: Path) -> Path:
    """Where a file of the repository is on the site, from the top of it."""
    if file == DOCS / "README.md":
        return Path("index.md")
    place = file.relative_to(DOCS) if file.is_relative_to(DOCS) else file.relative_to(ROOT)
    return place.with_suffix(".md") if place.suffix == ".ipynb" else place


def with_links(text: str, page: Path) -> str:
    """The text with links that fit the site; what is not on it loses its link."""

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match.groups()
        file = Path(os.path.normpath(page.parent / target))
        # The changelog links to pages that have been joined with others since.
        pages = (
            file.exists()
            and file.suffix in (".md", ".ipynb")
            and (file.is_relative_to(DOCS) or (file.name in TOP and file.parent == ROOT))
        )
        if not pages:
            return words
        new = os.path.relpath(staged(file), staged(page).parent)
        return f"[{words}]({Path(new).as_posix()}{anchor or ''})"

    parts = FENCE.split(text)
    return "".join(part if FENCE.fullmatch(part) else LINK.sub(link, part) for part in parts)


def navigation() -> str:
    """Trees of contents, one per section of docs/README.md."""
    text = (DOCS / "README.md").read_text(encoding="utf-8")
    trees = []
    for section in text.split("\n## ")[1:]:
        caption, _, body = section.partition("\n")
        files = [DOCS / match[2] for match in LINK.finditer(body)]
        if caption == "Look up":
            files += [ROOT / name for name in TOP]
        names = [staged(file).with_suffix("").as_posix() for file in files]
        names = [*dict.fromkeys(names)] + ["api/index"] * (caption == "Look up")
        lines = "\n".join(names)
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n")
    return "\n".join(trees)


def executed(notebook: Path) -> list[dict[str, Any]]:
    """The cells of a notebook with their outputs."""
    import nbformat
    from nbclient import NotebookClient

    read = nbformat.read(notebook, as_version=4)
    client = NotebookClient(read, timeout=300, resources={"metadata": {"path": str(ROOT)}})
    cells: list[dict[str, Any]] = client.execute()["cells"]
    return cells


def cell_text(cell: dict[str, Any]) -> str:
    """A cell as Markdown."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source + "\n"
    text = f"```python\n{source}\n```\n"
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if words := "".join(data.get("text/plain", output.get("text", ""))):
            text += f"\n```{{code-block}} text\n:class: output\n\n{words.rstrip()}\n```\n"
    return text


def write_reference(folder: Path) -> None:
    """Pages for all public names of the package and of some of its rooms."""
    import labelgrove

    folder.mkdir(parents=True)
    names = [name for name in labelgrove.__all__ if not name.startswith("_")]
    groups = dict(GROUPS)
    groups["More"] = tuple(name for name in names if not any(name in g for g in GROUPS.values()))
    pages = {
        f"labelgrove-{title.lower()}": (title, [("labelgrove", name) for name in group])
        for title, group in groups.items()
    }
    # What all methods share is documented once, with their base class.
    pages["labelgrove-models"][1].append(("labelgrove.methods.base", "Model"))
    for room, title in ROOMS.items():
        module = importlib.import_module(room)
        public = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == room
        ]
        pages[room] = (f"{title} ({room})", [(room, name) for name in public])
    for file, (title, members) in pages.items():
        lines = [title, "=" * len(title), ""]
        for module_name, name in members:
            value = getattr(importlib.import_module(module_name), name)
            if callable(value):
                kind = "class" if isinstance(value, type) else "function"
                lines += [f".. auto{kind}:: {module_name}.{name}", ""]
        (folder / f"{file}.rst").write_text("\n".join(lines), encoding="utf-8")
    listed = "\n   ".join(pages)
    (folder / "index.rst").write_text(
        "Python reference\n================\n\nMade from the docstrings; their examples run in the "
        f"tests.\n\n.. toctree::\n\n   {listed}\n",
        encoding="utf-8",
    )


def build(target: Path, *, execute: bool = True) -> Path:
    """Builds the site and returns the folder with its pages."""
    source, html = target / "source", target / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    stage(source, execute=execute)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-W", "--keep-going"]
    subprocess.run([*command, str(source), str(html)], check=True)
    return html


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "docs")
    parser.add_argument("--no-execute", action="store_true", help="Leave out notebooks' outputs.")
    options = parser.parse_args()
    print(build(options.folder, execute=not options.no_execute) / "index.html")
