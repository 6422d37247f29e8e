"""Which labels a prediction may contain: allow and deny lists over an index or a tree."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Int32, offsets
from labelgrove.core.nfc import nfc
from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree

LabelNames: TypeAlias = Iterable[str]
GROUP = "group:"


class LabelMask:
    """The labels of an index that may be predicted; make it once and use it often.

    ``allow`` and ``deny`` are lists of label ids, names or names of the index's groups. Without
    ``allow`` every label is allowed, and ``deny`` always wins.

    >>> names = ["cats", "dogs", "tea"]
    >>> index = LabelIndex(["c1", "c2", "c3"], names=names, groups={"pets": [0, 1]})
    >>> mask = LabelMask(index, allow=["pets"], deny=["dogs"])
    >>> mask.columns.tolist(), len(mask)
    ([0], 1)
    """

    def __init__(
        self,
        index: LabelIndex,
        *,
        allow: LabelMask | LabelNames | None = None,
        deny: LabelNames | None = None,
    ) -> None:
        self.allowed: npt.NDArray[np.bool_] = np.full(len(index), allow is None)
        if isinstance(allow, LabelMask):
            self.allowed = allow.checked(index).allowed.copy()
        elif allow is not None:
            self.allowed[columns_of(index, allow, name="allow")] = True
        if deny is not None:
            self.allowed[columns_of(index, deny, name="deny")] = False
        self._finish()

    @classmethod
    def from_columns(cls, allow: npt.ArrayLike, labels: int) -> LabelMask:
        """The mask for columns of an index with this number of labels."""
        mask = cls.__new__(cls)
        mask.allowed = np.zeros(labels, bool)
        mask.allowed[label_columns(allow, labels, name="allow")] = True
        mask._finish()
        return mask

    def _finish(self) -> None:
        self.columns: Int32 = np.flatnonzero(self.allowed).astype(np.int32)
        if len(self.columns) == 0:
            raise DataError("no label is left to predict: check the allow and deny lists")
        self._over: list[tuple[LabelTree, Int32]] = []

    @classmethod
    def of(
        cls,
        index: LabelIndex,
        allow: LabelMask | LabelNames | None = None,
        deny: LabelNames | None = None,
    ) -> LabelMask | None:
        """The mask for a call's arguments, of which ``allow`` may be a mask; None allows all."""
        if deny is None:
            if allow is None:
                return None
            if isinstance(allow, LabelMask):
                return allow.checked(index)
        return cls(index, allow=allow, deny=deny)

    def checked(self, index: LabelIndex) -> LabelMask:
        """This mask, if it can belong to ``index``."""
        if len(self.allowed) != len(index):
            raise DataError(
                f"allow: the mask is over {len(self.allowed):,} labels, the model has "
                f"{len(index):,}"
            )
        return self

    def __len__(self) -> int:
        return len(self.columns)

    def over(self, tree: LabelTree) -> Int32:
        """How many leaves of a tree are allowed before each position; the result is remembered."""
        for known, counts in self._over:
            if known is tree:
                return counts
        counts = offsets(self.allowed[tree.leaf_labels]).astype(np.int32)
        self._over = [*self._over[-7:], (tree, counts)]
        return counts


def label_columns(columns: npt.ArrayLike, labels: int, *, name: str) -> Int32:
    """Label columns as a checked array."""
    array = np.asarray(columns)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(f"{name}: must be a list of label columns (whole numbers)")
    if array.size and not 0 <= array.min() <= array.max() < labels:
        raise DataError(f"{name}: a label column lies outside 0..{labels - 1}")
    return array.astype(np.int32)


def columns_of(index: LabelIndex, labels: LabelNames, *, name: str) -> Int32:
    """Columns of labels given by id, by name or as the name of one of the index's groups.

    A name that several labels have means all of them.
    A name of both a label and a group means the label; with ``group:`` before it, the group.
    """
    if isinstance(labels, str):
        raise DataError(f"{name}: must be a list of labels, even for one: [{labels!r}]")
    columns: list[int] = []
    for label in labels:
        if isinstance(label, str) and (named := index.columns_named(label)):
            columns += named
            continue
        group = _group(index, label) if isinstance(label, str) else None
        if group is None:
            file = isinstance(label, str) and Path(label).suffix and Path(label).is_file()
            hint = f"; for the labels in a file, write @{label}" if file else _group_names(index)
            raise DataError(f"{name}: {index.unknown(label)}{hint}")
        columns.extend(index.groups[group].tolist())
    return np.array(columns, np.int32)


def _group(index: LabelIndex, label: str) -> str | None:
    """The group with this name, or the one called after the label with this name."""
    if label in index.groups:
        return label
    name = nfc(label).removeprefix(GROUP)
    column = index.get(name)
    if name not in index.groups and column is not None:
        name = index.ids[column]
    return name if name in index.groups else None


def _group_names(index: LabelIndex) -> str:
    names = list(index.groups)
    more = f" ... ({len(names):,})" if len(names) > 10 else ""
    return f" and the groups {', '.join(names[:10])}{more}" if names else ""
