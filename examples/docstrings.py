"""Write the first paragraphs of installed Python packages' docstrings, labelled with their modules.

    python examples/docstrings.py docstrings.jsonl  # about 6,000 documents

The task: predict from the description of a function or class where to find it, such as ``scipy``,
``scipy.stats``, ``scipy.stats.mstats``. The texts are short, by many authors, and already on every
machine. Sources are parsed where they are installed; nothing is imported, downloaded or copied.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from labelgrove.data.formats import Document, write_corpus

# Python's own modules, and packages that `pip install labelgrove[torch]` installs.
STANDARD_LIBRARY = "stdlib"
PACKAGES = (STANDARD_LIBRARY, "numpy", "scipy", "sklearn", "networkx")
# Tests, copies of other projects, and folders that are not part of the standard library.
_LEFT_OUT = {"dist-packages", "externals", "idlelib", "lib2to3", "site-packages", "vendored"}
_FEWEST_WORDS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", default=Path("docstrings.jsonl"))
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    options = parser.parse_args()
    documents = docstring_documents(options.packages)
    write_corpus(documents, options.out)
    print(f"{options.out}: {len(documents):,} documents")


def docstring_documents(
    packages: Sequence[str] = PACKAGES, *, levels: int = 3, least: int = 5
) -> list[Document]:
    """One document per public function or class: the first paragraph of its docstring.

    Labels are the module and its packages, at most ``levels``, if at least ``least`` documents have
    them. The id is the dotted name. Repeated texts count once. Packages that are not installed are
    left out; ``stdlib`` is the standard library.
    """
    by_text: dict[str, Document] = {}
    for name, folder in _roots(packages):
        for document in _documents_in(folder, name, levels):
            by_text.setdefault(document.text, document)
    return _with_frequent_labels(list(by_text.values()), least)


def _roots(packages: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for name in packages:
        if name == STANDARD_LIBRARY:
            yield "", Path(sysconfig.get_path("stdlib"))
            continue
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield name, Path(spec.origin).parent


def _documents_in(folder: Path, package: str, levels: int) -> Iterator[Document]:
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder).with_suffix("").parts
        if any(part in _LEFT_OUT or part.startswith("test") for part in path):
            continue
        # Users import from public modules, even if the code is in private ones.
        public = [part for part in (package, *path) if part and not part.startswith("_")]
        labels = [".".join(public[:depth]) for depth in range(1, min(levels, len(public)) + 1)]
        if labels:
            for name, text in described(file.read_bytes()):
                yield Document(text, labels, ".".join([*public, name]))


def described(source: bytes) -> Iterator[tuple[str, str]]:
    """Names of a source file's public functions and classes, with their first paragraphs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings
            nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return  # a template, or code for another version of Python
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        text = ast.get_docstring(node) or ""
        words = re.split(r"\n\s*\n", text, maxsplit=1)[0].split()
        if not node.name.startswith("_") and len(words) >= _FEWEST_WORDS:
            yield node.name, " ".join(words)


def _with_frequent_labels(documents: list[Document], least: int) -> list[Document]:
    counts = Counter(label for document in documents for label in document.labels)
    frequent = [
        Document(d.text, [label for label in d.labels if counts[label] >= least], d.id)
        for d in documents
    ]
    return [document for document in frequent if document.labels]


if __name__ == "__main__":
    main()
