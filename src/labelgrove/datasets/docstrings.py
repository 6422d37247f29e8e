"""The first sentences of installed Python packages' docstrings, and the modules they belong to.

The task: from the words that describe a function or a class, say where to look for it, as in
``scipy``, ``scipy.stats``, ``scipy.stats.mstats``. Short texts in many people's words, a few dozen
of them per label, and on every machine already. The sources are parsed where they are installed;
nothing is imported, fetched or copied.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from labelgrove.formats.documents import Document

# Python's own modules, and what `pip install labelgrove[torch]` brings along.
STANDARD_LIBRARY = "stdlib"
PACKAGES = (STANDARD_LIBRARY, "numpy", "scipy", "sklearn", "networkx")
# Tests, copies of other projects, and what is no part of the standard library.
_LEFT_OUT = {"dist-packages", "externals", "idlelib", "lib2to3", "site-packages", "vendored"}
_FEWEST_WORDS = 4


def docstring_documents(
    packages: Sequence[str] = PACKAGES, *, levels: int = 3, least: int = 5
) -> list[Document]:
    """One document per public function or class: the first paragraph of its docstring.

    Labels are the module and the packages around it, ``levels`` at most, as far as ``least``
    documents bear them. The id is the dotted name. A text that occurs twice counts once. Packages
    that are not installed are left out; ``stdlib`` is the standard library.

    >>> documents = docstring_documents(["json"], least=1)
    >>> {d.id: d.labels for d in documents}["json.decoder.JSONDecoder"]
    ['json', 'json.decoder']
    """
    found: dict[str, Document] = {}
    for name, folder in _roots(packages):
        for document in _documents_below(folder, name, levels):
            found.setdefault(document.text, document)
    return _with_frequent_labels(found.values(), least)


def _roots(packages: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for name in packages:
        if name == STANDARD_LIBRARY:
            yield "", Path(sysconfig.get_path("stdlib"))
            continue
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield name, Path(spec.origin).parent


def _documents_below(folder: Path, package: str, levels: int) -> Iterator[Document]:
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder).with_suffix("").parts
        if any(part in _LEFT_OUT or part.startswith("test") for part in path):
            continue
        # Private modules are where the code is, not where people find it.
        public = [part for part in (package, *path) if part and not part.startswith("_")]
        labels = [".".join(public[:depth]) for depth in range(1, min(levels, len(public)) + 1)]
        if labels:
            for name, text in described(file.read_bytes()):
                yield Document(text, labels, ".".join([*public, name]))


def described(source: bytes) -> Iterator[tuple[str, str]]:
    """Public functions and classes of a source file, with the first paragraph of their docstrings.

    >>> list(described(b"def tea():\\n    '''Boil the\\n    water first.\\n\\n    Then wait.'''"))
    [('tea', 'Boil the water first.')]
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in other people's strings
            nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return  # a template, or for another Python
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        text = ast.get_docstring(node) or ""
        words = re.split(r"\n\s*\n", text, maxsplit=1)[0].split()
        if not node.name.startswith("_") and len(words) >= _FEWEST_WORDS:
            yield node.name, " ".join(words)


def _with_frequent_labels(documents: Iterable[Document], least: int) -> list[Document]:
    kept = list(documents)
    counts = Counter(label for document in kept for label in document.labels)
    kept = [
        Document(d.text, [label for label in d.labels if counts[label] >= least], d.id)
        for d in kept
    ]
    return [document for document in kept if document.labels]
