"""Which labels a prediction may give: allow and deny lists over a label index."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Int32
from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import TreeMask, label_columns

GROUP = "group:"


class LabelMask:
    """The labels of an index that may be predicted; make it once and use it often.

    ``allow`` and ``deny`` are lists of label ids, names or names of the index's groups. Without
    ``allow`` every label may come, and ``deny`` always wins.

    >>> names = ["cats", "dogs", "tea"]
    >>> index = LabelIndex(["c1", "c2", "c3"], names=names, groups={"pets": [0, 1]})
    >>> mask = LabelMask(index, allow=["pets"], deny=["dogs"])
    >>> mask.columns.tolist(), len(mask)
    ([0], 1)
    """

    def __init__(self, index: LabelIndex, *, allow: Any = None, deny: Any = None) -> None:
        self.allowed: npt.NDArray[np.bool_] = np.full(len(index), allow is None)
        if isinstance(allow, LabelMask):
            self.allowed = allow.checked(index).allowed.copy()
        elif allow is not None:
            self.allowed[columns_of(index, allow, name="allow")] = True
        if deny is not None:
            self.allowed[columns_of(index, deny, name="deny")] = False
        self._finish()

    @classmethod
    def from_columns(cls, columns: Any, labels: int) -> LabelMask:
        """The mask that allows some columns of an index with so many labels.

        >>> LabelMask.from_columns([2, 0], 3).columns.tolist()
        [0, 2]
        """
        mask = cls.__new__(cls)
        mask.allowed = np.zeros(labels, bool)
        mask.allowed[label_columns(columns, labels, name="columns")] = True
        mask._finish()
        return mask

    def _finish(self) -> None:
        self.columns: Int32 = np.flatnonzero(self.allowed).astype(np.int32)
        if len(self.columns) == 0:
            raise DataError("no label is left to predict: check the allow and deny lists")
        self._laid: list[tuple[LabelTree, TreeMask]] = []

    @classmethod
    def of(cls, index: LabelIndex, allow: Any = None, deny: Any = None) -> LabelMask | None:
        """The mask that a call's arguments describe; None where every label may come.

        ``allow`` may be a mask that is ready.

        >>> LabelMask.of(LabelIndex("ab")) is None, len(LabelMask.of(LabelIndex("ab"), deny=["a"]))
        (True, 1)
        """
        if deny is None:
            if allow is None:
                return None
            if isinstance(allow, LabelMask):
                return allow.checked(index)
        return cls(index, allow=allow, deny=deny)

    def checked(self, index: LabelIndex) -> LabelMask:
        """This mask, if it can belong to ``index``.

        >>> len(LabelMask(LabelIndex("ab"), allow=["a"]).checked(LabelIndex("ab")))
        1
        """
        if len(self.allowed) != len(index):
            raise DataError(
                f"allow: the mask is over {len(self.allowed):,} labels, the model has "
                f"{len(index):,}"
            )
        return self

    def __len__(self) -> int:
        return len(self.columns)

    def over(self, tree: LabelTree) -> TreeMask:
        """The mask laid over a tree, for its beam search; remembered for the next call.

        >>> mask = LabelMask(LabelIndex("abc"), deny=["b"])
        >>> mask.over(LabelTree([[0, 0, 0]], [2, 0, 1])).allowed_before.tolist()
        [0, 1, 2, 2]
        """
        for known, laid in self._laid:
            if known is tree:
                return laid
        laid = TreeMask(tree, allow=self.columns)
        self._laid = [*self._laid[-7:], (tree, laid)]
        return laid


def columns_of(index: LabelIndex, labels: Any, *, name: str) -> Int32:
    """Columns of labels given by id, by name or as the name of one of the index's groups.

    Where a label and a group have the same name it is the label; ``group:`` before it means the
    group.

    >>> index = LabelIndex(["a", "b", "c"], groups={"vowels": [0], "b": [1, 2]})
    >>> columns_of(index, ["c", "vowels"], name="allow").tolist()
    [2, 0]
    >>> columns_of(index, ["group:b"], name="allow").tolist()
    [1, 2]
    """
    if isinstance(labels, str):
        raise DataError(f"{name}: must be a list of labels, even for one: [{labels!r}]")
    columns: list[int] = []
    for label in labels:
        column = index.get(label) if isinstance(label, str) else None
        if column is not None:
            columns.append(column)
            continue
        group = _group(index, label) if isinstance(label, str) else None
        if group is None:
            raise DataError(
                f"{name}: unknown label {label!r}; the index has {len(index):,} labels"
                + _group_names(index)
            )
        columns.extend(index.groups[group].tolist())
    return np.array(columns, np.int32)


def _group(index: LabelIndex, label: str) -> str | None:
    """The group that is meant: by its name, or by the name of the label that it is called after."""
    if label in index.groups:
        return label
    name = label.removeprefix(GROUP)
    column = index.get(name)
    if name not in index.groups and column is not None:
        name = index.ids[column]
    return name if name in index.groups else None


def _group_names(index: LabelIndex, most: int = 10) -> str:
    names = list(index.groups)
    if not names:
        return ""
    shown = ", ".join(names[:most])
    return f" and the groups {shown}" + (f" ... ({len(names):,})" if len(names) > most else "")
