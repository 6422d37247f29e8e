"""Label trees given by the user as a thesaurus.

Wide nodes are expensive: a search that visits a node scores all its children, and each child is
trained on all documents of the node. No node may have more than 65,536 children.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from labelgrove.data.corpus import LabelIndex
from labelgrove.data.formats.files import bare_name, existing, read_all
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree

LOOSE_GROUP = 1000  # size of the groups of labels without relations in a thesaurus
MAX_LEVELS = 100  # of a given tree; every label has a number on every level
MAX_MEMBERS = 10_000_000  # of all groups of a thesaurus together


def tree_from_thesaurus(
    broader: Mapping[str, Sequence[str] | str], index: LabelIndex
) -> tuple[LabelTree, str]:
    """A tree over the labels of ``index`` from the broader concepts of each concept.

    Concepts need not be labels; those without labels below are left out. Of several broader
    concepts the first counts. A label with narrower labels gets its own leaf beside them, a broader
    concept without an entry is a top concept, and a cycle is cut where it closes. Labels at less
    depth than others end a chain of only children, which cost next to nothing. A sentence counts
    these cases.

    >>> index = LabelIndex(["animals", "cats", "dogs", "paper"])
    >>> tree, report = tree_from_thesaurus({"cats": ["animals"], "dogs": "animals"}, index)
    >>> tree.widths, report.split("; ")[0]
    ((2, 4), '4 labels on 2 levels, at most 3 children per node')
    """
    labels = len(index)
    if labels == 0:
        raise DataError("cannot make a tree over no labels")
    lists = {name: [above] if isinstance(above, str) else above for name, above in broader.items()}
    parent = {concept: above[0] for concept, above in lists.items() if above}
    several = sum(len(set(above)) > 1 for above in lists.values())
    known = dict.fromkeys([*index.ids, *broader])
    number = {concept: n for n, concept in enumerate(known | dict.fromkeys(parent.values()))}
    cycles = _cut_cycles(parent, known)
    ancestors = [_ancestors(parent, label) for label in index.ids]
    inner = {concept for path in ancestors for concept in path}
    loose = 0
    paths: list[list[int]] = []
    for column, (label, above) in enumerate(zip(index.ids, ancestors, strict=True)):
        path = [number[concept] for concept in (*above, *([label] if label in inner else []))]
        if not path:
            path.append(len(number) + column // LOOSE_GROUP)
            loose += 1
        paths.append(path)
    if loose == labels <= LOOSE_GROUP:
        paths = [[] for _ in paths]
    depth = max(map(len, paths))
    # Below its own parent a label is alone; on every level it needs a number of its own.
    own = len(number) + labels
    levels = [
        np.array([path[t] if t < len(path) else own + c for c, path in enumerate(paths)])
        for t in range(depth)
    ]
    tree = _tree_from_paths([*levels, np.arange(labels)])
    widest = max(int(np.diff(tree.children(t)).max()) for t in range(len(tree.parents)))
    remarks = {
        "labels with narrower ones got a leaf beside them": len(inner & set(index.ids)),
        "concepts have several parents, the first counts": several,
        "parents without an entry taken for top concepts": len(number) - len(known),
        "cycle cut" if cycles == 1 else "cycles cut": cycles,
        "labels without relations put into groups by column": loose,
    }
    size = f"{labels:,} labels on {len(tree.parents)} levels, at most {widest:,} children per node"
    return tree, "; ".join([size, *(f"{n:,} {what}" for what, n in remarks.items() if n)])


def read_broader(path: str | Path) -> dict[str, list[str]]:
    """A thesaurus from a TSV file: an id and its broader ids per line, tabs between them."""
    file = existing(path)
    if bare_name(file).lower().endswith(".json"):
        raise DataError("is JSON; a thesaurus is a TSV file: id, broader ids", file=file)
    broader: dict[str, dict[str, None]] = {}
    for number, line in read_all(file):
        if not line.strip() or line.startswith("#"):
            continue
        concept, *above = (field.strip() for field in line.split("\t"))
        if not concept:
            raise DataError("the concept's id is empty", file=file, line=number)
        broader.setdefault(concept, {}).update(dict.fromkeys(filter(None, above)))
    return {concept: list(above) for concept, above in broader.items()}


def groups_from_thesaurus(
    broader: Mapping[str, Sequence[str]], index: LabelIndex
) -> dict[str, npt.NDArray[np.int32]]:
    """For every concept with narrower ones, the labels at and below it, by all paths: for masks."""
    groups: dict[str, list[int]] = {}
    members = 0
    for column, label in enumerate(index.ids):
        seen, waiting = {label}, [label]
        while waiting:
            for concept in broader.get(waiting.pop(), ()):
                if concept not in seen:
                    seen.add(concept)
                    waiting.append(concept)
                    groups.setdefault(concept, []).append(column)
        members += len(seen) - 1
        if members > MAX_MEMBERS:
            raise DataError(
                f"the groups of the thesaurus have more than {MAX_MEMBERS:,} members together; "
                "leave out concepts that are far above the labels"
            )
    for concept, columns in groups.items():
        own = index.get(concept)
        if own is not None and index.ids[own] == concept:
            columns.append(own)
    return {name: np.unique(columns).astype(np.int32) for name, columns in sorted(groups.items())}


def read_label_groups(path: str | Path, index: LabelIndex) -> dict[str, npt.NDArray[np.int32]]:
    """The groups of a thesaurus file that :func:`read_label_tree` reads."""
    broader = read_broader(path)
    try:
        return groups_from_thesaurus(broader, index)
    except DataError as error:
        raise DataError(str(error), file=path) from error


def read_label_tree(path: str | Path, index: LabelIndex) -> tuple[LabelTree, str]:
    """A tree over the labels of ``index`` from a thesaurus file, and a sentence about it."""
    broader = read_broader(path)
    if not any(label in broader for label in index.ids):
        raise DataError(
            f"names the broader concepts of none of the {len(index):,} labels; it must use their "
            f"ids, such as {index.ids[0]!r}",
            file=path,
        )
    try:
        return tree_from_thesaurus(broader, index)
    except DataError as error:
        raise DataError(str(error), file=path) from error


def _cut_cycles(parent: dict[str, str], concepts: Iterable[str]) -> int:
    """Removes each link that closes a cycle; returns how many."""
    cycles = 0
    walk_of: dict[str, str] = {}
    for start in concepts:
        node: str | None = start
        while node is not None and node not in walk_of:
            walk_of[node] = start
            above = parent.get(node)
            if above is not None and walk_of.get(above) == start:
                del parent[node]
                cycles += 1
                break
            node = above
    return cycles


def _ancestors(parent: Mapping[str, str], concept: str) -> list[str]:
    """From the top concept down to the concept's parent."""
    path: list[str] = []
    while concept in parent:
        concept = parent[concept]
        path.append(concept)
        if len(path) > MAX_LEVELS:
            raise DataError(
                f"more than {MAX_LEVELS} concepts are above each other; a label tree cannot have "
                "so many levels"
            )
    return path[::-1]


def _tree_from_paths(paths: list[npt.NDArray[np.int64]]) -> LabelTree:
    """A tree from the node of every label on every level; the last level is the labels."""
    order = np.lexsort(paths[::-1])
    new = np.zeros(len(order), bool)
    new[0] = True
    above = np.zeros(len(order), np.int64)
    parents = []
    for path in paths:
        arranged = path[order]
        new[1:] |= arranged[1:] != arranged[:-1]
        parents.append(above[new])
        above = np.cumsum(new) - 1
    return LabelTree(parents, order)
