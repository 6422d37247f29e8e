"""A model's label trees, one page of children at a time.

A node's id is its level and its number there ("1.17"; "root" for all labels). Nodes with a single
child are skipped: trees of uneven depth have chains of them. Nothing is prepared in advance: with
three million labels the first page takes half a second, later ones a few milliseconds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Int32
from labelgrove.data.corpus import LabelIndex
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.explaining.rankers import node_path
from labelgrove.serve.problems import Problem
from labelgrove.serve.schema import TreeNode, TreePage
from labelgrove.serve.search import found_label

ROOT = "root"
EXAMPLES = 3
EXAMPLES_KEPT = 10_000  # nodes; large ones take longest and are requested most


class _Node(NamedTuple):
    level: int  # -1 is the root's
    number: int

    @property
    def id(self) -> str:
        return ROOT if self.level < 0 else f"{self.level}.{self.number}"


class TreeWalk:
    """Pages of one tree's nodes."""

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
        if node.level < 0:
            return self._tree.leaf_labels
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
