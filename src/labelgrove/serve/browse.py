"""How people find labels: by parts of their names, or along a label tree, page by page."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Int32
from labelgrove.core.nfc import nfc
from labelgrove.data.corpus import LabelIndex
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.explaining.rankers import node_path
from labelgrove.serve.problems import Problem
from labelgrove.serve.schema import FoundLabel, TreeNode, TreePage

# Largest number of hits per kind of match; the most frequent labels come first among them.
_HITS = 1000

ROOT = "root"
EXAMPLES = 3
EXAMPLES_KEPT = 10_000  # nodes; large ones take longest and are requested most


class LabelSearch:
    """Finds labels by name or id, ignoring case: whole names, then beginnings of names, then
    beginnings of words, then any part; within each kind, frequent labels first.

    The names are the lines of one byte string, which is searched directly: 360,000 labels take 50
    milliseconds, without an index.
    """

    def __init__(self, index: LabelIndex, frequencies: npt.NDArray[np.int64]) -> None:
        self._index = index
        self._frequencies = frequencies
        self._lines = [_Lines(index.names)]
        if index.names is not index.ids:
            self._lines.append(_Lines(index.ids))

    def find(self, query: str, *, limit: int) -> npt.NDArray[np.int64]:
        """Columns of the best ``limit`` labels; without a query, of the most frequent ones."""
        folded = _folded(query)
        if not folded:
            return self._most_frequent[:limit]
        columns: dict[int, None] = {}
        for pattern in (b"\n%b\n", b"\n%b", b" %b", b"%b"):
            for lines in self._lines:
                hits = lines.holding(pattern % folded, _HITS)
                columns |= dict.fromkeys(self._by_frequency(hits).tolist())
            if len(columns) >= limit:
                break
        return np.array(list(columns)[:limit], np.int64)

    @cached_property
    def _most_frequent(self) -> npt.NDArray[np.int64]:
        # The page asks for these first; sorting a million labels takes 0.2 seconds.
        return self._by_frequency(np.arange(len(self._frequencies)))[:_HITS].copy()

    def _by_frequency(self, columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return columns[np.argsort(-self._frequencies[columns], kind="stable")]


def found_label(index: LabelIndex, frequencies: npt.NDArray[np.int64], column: int) -> FoundLabel:
    """A label with the number of training documents that have it."""
    documents = int(frequencies[column])
    return {"id": index.ids[column], "name": index.names[column], "training_documents": documents}


class _Lines:
    """Strings as lines of one blob, to find the numbers of those that contain something."""

    def __init__(self, strings: Iterable[str]) -> None:
        lines = [_folded(string) for string in strings]
        lengths = np.array([len(line) + 1 for line in lines], np.int64)
        self._ends = np.cumsum(lengths)  # position of each line's newline
        self._blob = b"\n" + b"\n".join(lines) + b"\n"

    def holding(self, pattern: bytes, most: int) -> npt.NDArray[np.int64]:
        hits: list[int] = []
        begins = pattern.startswith(b"\n")
        position = self._blob.find(pattern)
        while position >= 0 and len(hits) < most:
            # A newline at the beginning of the pattern ends the line before.
            line = int(np.searchsorted(self._ends, position + begins))
            hits.append(line)
            position = self._blob.find(pattern, int(self._ends[line]))
        return np.array(hits, np.int64)


def _folded(string: str) -> bytes:
    return " ".join(nfc(string).casefold().split()).encode("utf-8", "surrogatepass")


class _Node(NamedTuple):
    level: int  # -1 is the root's
    number: int

    @property
    def id(self) -> str:
        return ROOT if self.level < 0 else f"{self.level}.{self.number}"


class TreeWalk:
    """Pages of one tree's nodes, with one page of children at a time.

    A node's id is its level and its number there ("1.17"; "root" for all labels). Nodes with a
    single child are skipped: trees of uneven depth have chains of them. Nothing is prepared in
    advance: with three million labels the first page takes half a second, later ones a few
    milliseconds.
    """

    def __init__(
        self, tree: LabelTree, index: LabelIndex, frequencies: npt.NDArray[np.int64]
    ) -> None:
        self._tree = tree
        self._index = index
        self._frequencies = frequencies
        self._examples = lru_cache(EXAMPLES_KEPT)(self._frequent)

    def page(self, node: str, *, offset: int, limit: int, label: str | None = None) -> TreePage:
        """A node, the nodes above it, and ``limit`` of its children from ``offset`` on; with a
        ``label``, the page that leads to it instead."""
        here = self._node(node)
        first, last = self._children(here)
        toward = None
        if label is not None:
            child = self._toward(here, label)
            offset = (child.number - first) // limit * limit
            toward = self._settled(child).id
        numbers = range(min(first + offset, last), min(first + offset + limit, last))
        children = [self._settled(_Node(here.level + 1, number)) for number in numbers]
        return {
            "node": self._described(here, ROOT if node == ROOT else here.id),
            "path": [self._described(above, id) for id, above in self._above(here)],
            "children": [self._described(child, child.id) for child in children],
            "offset": offset,
            "toward": toward,
        }

    def _node(self, node: str) -> _Node:
        if node == ROOT:
            return self._settled(_Node(-1, 0))
        level, _, number = node.partition(".")
        if all(part.isascii() and part.isdigit() and len(part) < 10 for part in (level, number)):
            here = _Node(int(level), int(number))
            widths = self._tree.widths
            if here.level < len(widths) and here.number < widths[here.level]:
                return self._settled(here)
        raise Problem("no-node", f"node: the tree has no node {node!r}; start at {ROOT!r}")

    def _toward(self, here: _Node, label: str) -> _Node:
        column = self._index.get(label)
        if column is None:
            raise Problem("no-label", f"label: the model has no label {label!r}")
        way = node_path(self._tree, column)
        below = here.level + 1
        if below >= len(way) or (here.level >= 0 and way[here.level] != here.number):
            raise Problem("no-label", f"label: {label!r} does not lie below this node")
        return _Node(below, way[below])

    def _children(self, node: _Node) -> tuple[int, int]:
        """The range of the node's children on the next level."""
        if node.level + 1 >= len(self._tree.parents):
            return 0, 0
        return self._range(node.level + 1, node.number, node.number + 1)

    def _range(self, level: int, first: int, last: int) -> tuple[int, int]:
        # Bounds of the array's own type: otherwise NumPy would copy the whole level.
        bounds = np.array([first, last], np.int32)
        low, high = np.searchsorted(self._tree.parents[level], bounds)
        return int(low), int(high)

    def _settled(self, node: _Node) -> _Node:
        """The node itself, or the end of its chain of single children."""
        first, last = self._children(node)
        while last - first == 1:
            node = _Node(node.level + 1, first)
            first, last = self._children(node)
        return node

    def _above(self, node: _Node) -> list[tuple[str, _Node]]:
        """The nodes above with their ids, from the root on, without those with a single child."""
        above: list[_Node] = []
        while node.level >= 0:
            number = int(self._tree.parents[node.level][node.number])
            node = _Node(node.level - 1, number)
            first, last = self._children(node)
            if last - first > 1:
                above.insert(0, node)
        return [(one.id if number else ROOT, one) for number, one in enumerate(above)]

    def _below(self, node: _Node) -> Int32:
        """The label columns below the node, including its own."""
        first, last = node.number, node.number + 1
        for level in range(node.level + 1, len(self._tree.parents)):
            first, last = self._range(level, first, last)
        return self._tree.leaf_labels[first:last]

    def _described(self, node: _Node, id: str) -> TreeNode:
        columns = self._below(node)
        first, last = self._children(node)
        leaf = len(columns) == 1
        label = found_label(self._index, self._frequencies, int(columns[0])) if leaf else None
        return {
            "id": id,
            "label": label,
            "labels": len(columns),
            "children": 0 if leaf else last - first,
            "examples": [] if leaf else [self._index.names[c] for c in self._examples(node)],
        }

    def _frequent(self, node: _Node) -> list[int]:
        """A few labels that show what a node is about: its most frequent ones."""
        columns = self._below(node)
        counts = -self._frequencies[columns]
        if len(columns) > EXAMPLES:
            best = np.argpartition(counts, EXAMPLES - 1)[:EXAMPLES]
            columns, counts = columns[best], counts[best]
        return [int(column) for column in columns[np.lexsort((columns, counts))]]
