"""Documents with their labels, and the index that gives every label a column, an id and a name."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from labelgrove.core.aliases import LabelInput
from labelgrove.core.arrays import CSR, Array, Int64, MatrixLike, as_csr, narrow_csr, offsets
from labelgrove.core.late import sparse
from labelgrove.core.nfc import nfc
from labelgrove.core.part import Part
from labelgrove.core.strings import StringTable, nearest_strings, row_numbers
from labelgrove.data.features import Features, as_dense, as_features, with_dense
from labelgrove.data.frames import indicator, is_frame, text_list, weighted_labels, without_frame
from labelgrove.errors import DataError, warn

Strings = Sequence[str]


class LabelIndex:
    """The label of each column: unique ``ids``, readable ``names``, optional ``texts``.

    The data has ids (``gnd:4030340-8``), people read names; without names an id is its own name.
    ``groups`` maps a group's name to columns, for masks. ``listed`` says, for all labels or for
    each, whether a label table has it; other labels are known from documents alone.

    >>> index = LabelIndex(["c1", "c2"], names=["cats", "dogs"])
    >>> len(index), index.names[1], index.column("c1"), index.column("dogs")
    (2, 'dogs', 0, 1)
    """

    def __init__(
        self,
        ids: Iterable[str],
        *,
        names: Iterable[str] | None = None,
        texts: Iterable[str] | None = None,
        groups: Mapping[str, npt.ArrayLike] | None = None,
        listed: npt.ArrayLike = True,
    ) -> None:
        self.ids: Strings = _sequence(ids)
        self.names: Strings = self.ids if names is None else _sequence(names)
        self.texts: Strings | None = None if texts is None else _sequence(texts)
        self.groups = {
            name: _group(name, columns, len(self.ids)) for name, columns in (groups or {}).items()
        }
        self.hidden: npt.NDArray[np.bool_] | None = None
        self.listed = np.broadcast_to(np.asarray(listed, bool), (len(self.ids),))
        for what, values in (("names", self.names), ("texts", self.texts)):
            if values is not None and len(values) != len(self.ids):
                raise DataError(f"{len(self.ids)} label ids but {len(values)} label {what}")

    @cached_property
    def _column_of_id(self) -> dict[str, int]:
        columns = {label: column for column, label in enumerate(self.ids)}
        if len(columns) != len(self.ids):
            twice = next(x for column, x in enumerate(self.ids) if columns[x] != column)
            raise DataError(f"label id {twice!r} occurs twice in the label index")
        return _with_spellings(columns)

    @cached_property
    def _column_of_name(self) -> dict[str, int]:
        # Names need not be unique (homonyms); the first column wins, ids always win over names.
        columns: dict[str, int] = {}
        self._namesakes: dict[int, list[int]] = {}  # not shared with a copy of this index
        for column, name in enumerate(self.names):
            if (first := columns.setdefault(name, column)) != column:
                self._namesakes.setdefault(first, [first]).append(column)
        return _with_spellings(columns)

    def columns_named(self, label: str) -> list[int]:
        """The column of the label with this id, or those of all labels with this name."""
        column = self.get(label)
        if column is None:
            return []
        is_id = column in map(self._column_of_id.get, (label, nfc(label)))
        return [column] if is_id else self._namesakes.get(column, [column])

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelIndex):
            return NotImplemented
        return self is other or (
            len(self) == len(other)
            and all(a == b for a, b in zip(self.ids, other.ids, strict=True))
            and all(a == b for a, b in zip(self.names, other.names, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def column(self, label: str) -> int:
        """Column of a label given by id or, failing that, by name."""
        column = self.get(label)
        if column is None:
            raise DataError(self.unknown(label))
        return column

    def unknown(self, label: object) -> str:
        """What to say of a label that the index does not have, with the names nearest to it."""
        near: list[str] = []
        if isinstance(label, str):
            near = nearest_strings(label, self.names) or nearest_strings(label, self.ids)
        hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
        return f"unknown label {label!r}{hint}; the index has {len(self):,} labels"

    def get(self, label: str) -> int | None:
        """Like :meth:`column`, but None for an unknown label; any spelling of accents will do."""
        column = self._column_of_id.get(label)
        if column is None and self.names is not self.ids:
            column = self._column_of_name.get(label)
        if column is None and (composed := nfc(label)) is not label:
            return self.get(composed)
        return column

    def encode(self, label_lists: Iterable[object]) -> tuple[CSR, npt.NDArray[np.int64]]:
        """Label lists or mappings to weights as a matrix, and how many of each were unknown."""
        indptr = [0]
        indices: list[int] = []
        data: list[float] = []
        unknown: list[int] = []
        for row_number, labels in enumerate(label_lists):
            row: dict[int, float] = {}
            strangers: set[str] = set()
            for label, weight in weighted_labels(labels, row_number):
                column = self.get(label)
                if column is None:
                    strangers.add(nfc(label))
                else:
                    row[column] = max(weight, row.get(column, 0.0))
            indices += sorted(row)
            data += [row[column] for column in sorted(row)]
            indptr.append(len(indices))
            unknown.append(len(strangers))
        arrays = np.array(data, np.float32), np.array(indices, np.int64), np.array(indptr, np.int64)
        matrix = sparse.csr_array(arrays, shape=(len(indptr) - 1, len(self)))
        return as_csr(matrix), np.array(unknown, dtype=np.int64)

    @classmethod
    def from_label_lists(cls, label_lists: Iterable[object]) -> LabelIndex:
        """All labels that occur, sorted; those that differ only in accents' spelling are one."""
        lists = enumerate(label_lists)
        labels = {label for row, labels in lists for label, _ in weighted_labels(labels, row)}
        if merged := merged_labels(labels):
            warn(merged)
        return cls(sorted(set(map(nfc, labels))), listed=False)

    def with_groups(self, groups: Mapping[str, npt.ArrayLike]) -> LabelIndex:
        names = None if self.names is self.ids else self.names
        both = {**self.groups, **groups}
        return LabelIndex(self.ids, names=names, texts=self.texts, groups=both, listed=self.listed)

    @property
    def words(self) -> Strings:
        """What can be learnt about each label: its text or name; empty if it is hidden."""
        strings = self.names if self.texts is None else self.texts
        if self.hidden is None:
            return strings
        pairs = zip(strings, self.hidden.tolist(), strict=True)
        return ["" if hidden else string for string, hidden in pairs]

    def hiding(self, columns: npt.NDArray[np.bool_]) -> LabelIndex:
        """The same labels, of which some are ``hidden``: nothing is learnt from their names."""
        return self._with_hidden(columns) if columns.any() else self

    def revealed(self) -> LabelIndex:
        return self if self.hidden is None else self._with_hidden(None)

    def _with_hidden(self, columns: npt.NDArray[np.bool_] | None) -> LabelIndex:
        index = copy.copy(self)
        index.hidden = columns
        return index

    def state(self) -> Part:
        """The index as it goes to disk."""
        strings = {"ids": self.ids, "texts": self.texts}
        if self.names is not self.ids:
            strings["names"] = self.names
        arrays: dict[str, Array] = {}
        for name, values in strings.items():
            if values is not None:
                arrays |= StringTable.from_strings(values).arrays(name)
        if self.groups:  # a thesaurus may have thousands: two arrays hold them all
            arrays["groups.indptr"] = offsets([len(columns) for columns in self.groups.values()])
            arrays["groups.columns"] = np.concatenate(list(self.groups.values()))
        if self.hidden is not None:  # never in a model folder, but another input of stages
            arrays["hidden"] = self.hidden
        return Part({"groups": list(self.groups)}, arrays)

    @classmethod
    def from_state(cls, part: Part) -> LabelIndex:
        """The index that :meth:`state` described; memory-mapped strings stay on disk."""

        def table(name: str) -> StringTable | None:
            stored = f"{name}.blob" in part.arrays
            return StringTable.from_arrays(part.arrays, name) if stored else None

        groups = {}
        if part.config["groups"]:
            bounds, columns = part.arrays["groups.indptr"], part.arrays["groups.columns"]
            pieces = np.split(np.asarray(columns), bounds[1:-1])
            groups = dict(zip(part.config["groups"], pieces, strict=True))
        ids = StringTable.from_arrays(part.arrays, "ids")
        return cls(ids, names=table("names"), texts=table("texts"), groups=groups)

    def __repr__(self) -> str:
        return f"LabelIndex({len(self):,} labels)"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents (texts, or ready-made features, or both), their labels and the label index.

    ``features`` are Features, a sparse matrix or a dense array. If there are texts as well, methods
    read the texts and the dense block of the features. ``labels`` is a documents x labels CSR
    matrix whose values are weights (1 unless given). ``unknown`` counts, per document, the labels
    that the index does not have: they stay in the denominators of recall, nDCG and PSP.

    >>> corpus = Corpus.from_lists(["a red shoe", "blue hat"], [["shoes"], ["hats"]])
    >>> len(corpus), corpus.label_lists()
    (2, [['shoes'], ['hats']])
    """

    texts: Strings | None
    labels: CSR
    index: LabelIndex
    ids: Strings | None = None
    features: Features | None = None
    unknown: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        if self.texts is None and self.features is None:
            raise DataError("a corpus needs texts or features")
        object.__setattr__(self, "labels", as_csr(self.labels, name="labels"))
        if self.features is not None:
            object.__setattr__(self, "features", as_features(self.features))
        rows, columns = self.labels.shape
        if columns != len(self.index):
            raise DataError(
                f"the label matrix has {columns} columns but the index has {len(self.index)} labels"
            )
        sizes = {"texts": self.texts, "ids": self.ids, "feature rows": self.features}
        for what, values in sizes.items():
            if values is not None and len(values) != rows:
                raise DataError(f"{len(values)} {what} but {rows} rows of labels")
        if len(self.unknown) == 0:
            object.__setattr__(self, "unknown", np.zeros(rows, np.int64))
        elif len(self.unknown) != rows:
            raise DataError(f"{len(self.unknown)} counts of unknown labels but {rows} documents")

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: LabelInput,
        *,
        index: LabelIndex | None = None,
        ids: Sequence[str] | None = None,
    ) -> Corpus:
        """From plain lists: texts and their labels, as :func:`label_matrix` takes them."""
        matrix, index, unknown = label_matrix(labels, index)
        return cls(text_list(texts), matrix, index, ids, unknown=unknown)

    def __len__(self) -> int:
        return int(self.labels.shape[0])

    @property
    def inputs(self) -> Features | Strings:
        """The argument of a method's fit and predict: the texts, or else the features."""
        return self.features if self.texts is None else self.texts  # type: ignore[return-value]

    @property
    def width(self) -> int:
        """Columns of the dense block; 0 without one."""
        return 0 if self.features is None else self.features.width

    def with_dense(self, dense: MatrixLike) -> Corpus:
        """The same documents with a dense block, such as embeddings, besides what they have."""
        block = as_dense(dense, name="dense")
        if len(block) != len(self):
            raise DataError(f"{len(block)} dense rows but {len(self)} documents")
        return replace(self, features=with_dense(self.features, block))

    def take(self, rows: npt.ArrayLike) -> Corpus:
        """The documents at ``rows`` (numbers or a mask), in that order, over the same index."""
        picked = row_numbers(rows, len(self))
        return Corpus(
            _take(self.texts, picked),
            self.labels[picked],
            self.index,
            _take(self.ids, picked),
            None if self.features is None else self.features.take(picked),
            self.unknown[picked],
        )

    def label_lists(self, *, names: bool = False) -> list[list[str]]:
        """Each document's labels as ids (or names)."""
        values = self.index.names if names else self.index.ids
        indptr, indices = self.labels.indptr, self.labels.indices
        return [
            [values[c] for c in indices[indptr[row] : indptr[row + 1]]] for row in range(len(self))
        ]

    def reindex(self, index: LabelIndex) -> Corpus:
        """The same documents with columns of another index; labels it lacks become unknown."""
        if index is self.index:
            return self
        labels, lost = to_columns(self.labels, self.index.ids, index)
        return replace(self, labels=labels, index=index, unknown=self.unknown + lost)


def label_matrix(
    y: LabelInput, index: LabelIndex | Sequence[str] | None
) -> tuple[CSR, LabelIndex, Int64]:
    """The matrix and the index of labels as people give them, and the unknown ones of each row."""
    if index is not None and not isinstance(index, LabelIndex):
        index = LabelIndex([str(name) for name in index], listed=False)
    columns: LabelIndex | None = None
    if is_frame(y) and (table := indicator(y)) is not None:
        y, columns = table[0], LabelIndex(table[1], listed=False)
        index = columns if index is None else index
    y = without_frame(y, "labels")
    if index is not None:
        index.get("")  # refuses an id that occurs twice
    if sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2):
        matrix = as_csr(y, name="labels").copy()
        matrix.eliminate_zeros()
        if matrix.nnz and not matrix.data.min() >= 0:
            raise DataError("label weights must be positive; a missing cell (NaN) is no number")
        if columns is not None and index is not None:
            matrix, unknown = to_columns(matrix, columns.ids, index)
            return matrix, index, unknown
        if index is None and isinstance(y, np.ndarray):  # as scikit-learn's binarizers make it
            warn(
                "the columns of the label matrix have no names, so labels are called by their "
                "numbers; give names with index=, such as index=binarizer.classes_"
            )
        names = LabelIndex([str(c) for c in range(matrix.shape[1])]) if index is None else index
        return matrix, names, np.zeros(matrix.shape[0], np.int64)
    labels = list(y)
    names = LabelIndex.from_label_lists(labels) if index is None else index
    matrix, unknown = names.encode(labels)
    return matrix, names, unknown


def to_columns(
    matrix: CSR, labels: Iterable[str], index: LabelIndex
) -> tuple[CSR, npt.NDArray[np.int64]]:
    """A matrix in columns of the index, and per row how many entries have none there."""
    indexed = (index.get(label) for label in labels)
    column_of = np.array([-1 if column is None else column for column in indexed], np.int32)
    columns = column_of[matrix.indices]
    known = columns >= 0
    indptr = offsets(known)[matrix.indptr]
    shape = (matrix.shape[0], len(index))
    moved = narrow_csr(matrix.data[known], columns[known], indptr, shape)
    # A document may have a label by its id and by its name: the same column twice.
    moved, _ = merge_repeated(moved)
    return as_csr(moved), (np.diff(matrix.indptr) - np.diff(indptr)).astype(np.int64)


def merge_repeated(matrix: CSR) -> tuple[CSR, int]:
    """Merges entries of the same row and column to the largest, and counts the removed ones.

    >>> twice = sparse.csr_array(([1.0, 3.0], [0, 0], [0, 2]), shape=(1, 1))
    >>> merge_repeated(twice)[0].toarray(), merge_repeated(twice)[1]
    (array([[3.]], dtype=float32), 1)
    """
    # Made from its arrays, because SciPy's own conversions would add repeated entries up.
    matrix = sparse.csr_array(
        (matrix.data.astype(np.float32, copy=False), matrix.indices, matrix.indptr),
        shape=matrix.shape,
    )
    matrix.sort_indices()
    entries = len(matrix.indices)
    first = np.ones(entries, dtype=bool)
    np.not_equal(matrix.indices[1:], matrix.indices[:-1], out=first[1:])
    row_starts = matrix.indptr[:-1]
    first[row_starts[row_starts < entries]] = True
    repeated = entries - int(np.count_nonzero(first))
    if repeated == 0:
        return matrix, 0
    starts = np.flatnonzero(first)
    largest = np.maximum.reduceat(matrix.data, starts)
    indptr = offsets(first)[matrix.indptr]
    return narrow_csr(largest, matrix.indices[starts], indptr, matrix.shape), repeated


def merged_labels(labels: Collection[str]) -> str:
    """A sentence about labels that differ only in the spelling of accents; empty without any.

    >>> merged_labels(["caf\u00e9", "cafe\u0301", "tea"]).partition(",")[0]
    '1 label differs from another only in how accents are spelled in Unicode'
    """
    respelled = {label: composed for label in labels if (composed := nfc(label)) is not label}
    if not respelled:
        return ""
    seen = set(labels) - set(respelled)
    twice = []
    for label in respelled.values():
        if label in seen:
            twice.append(label)
        seen.add(label)
    if not twice:
        return ""
    verb = "label differs" if len(twice) == 1 else "labels differ"
    return (
        f"{len(twice):,} {verb} from another only in how accents are spelled in Unicode, and both "
        f"became one (NFC), for example {twice[0]!r}"
    )


def _with_spellings(columns: dict[str, int]) -> dict[str, int]:
    """Also the columns of labels in NFC; an index of an old model may have other spellings."""
    for label, column in list(columns.items()):
        if (composed := nfc(label)) is not label:
            columns.setdefault(composed, column)
    return columns


def _group(name: str, columns: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    try:
        return row_numbers(columns, count)
    except DataError as error:
        raise DataError(f"group {name!r} must hold columns of the {count:,} labels") from error


def _sequence(values: Iterable[str]) -> Strings:
    return values if isinstance(values, (list, tuple, StringTable)) else list(values)


def _take(values: Strings | None, rows: npt.NDArray[np.int64]) -> Strings | None:
    if values is None:
        return None
    if isinstance(values, StringTable):
        return values.take(rows)
    return [values[row] for row in rows]
