"""A document, the options of all readers, and the report of what they found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from labelgrove.core.arrays import CSR
from labelgrove.data.records import FieldNames, listed
from labelgrove.errors import ConfigError, DataError

MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Document:
    """``labels`` are ids or weights by id, ``columns`` all cells of a table's row, if asked for."""

    text: str
    labels: Mapping[str, float] | Sequence[str]
    id: str | None = None
    columns: Mapping[str, str] | None = None


@dataclass
class ReadOptions:
    """How to read a corpus; every format uses the fields that apply to it.

    ``text_field`` can name several fields, ``"title,content"``: those that a document has are
    joined by a newline. ``label_separator`` splits the labels column of CSV, TSV and Parquet; None
    means ``|``, or ``;`` if the first rows only have that.

    ``fields`` names catalogue fields, such as ``["creator", "series"]``. Then documents are
    records, in which every field has its name (see ``labelgrove.records``).

    >>> ReadOptions(text_field="title, content").text_fields()
    ('title', 'content')
    """

    format: str | None = None  # a key of FORMATS; None: detect it from the file
    part: str = "train"  # which part of a data set folder
    text_field: str | Sequence[str] = "text"
    fields: str | Sequence[str] | None = None
    labels_field: str = "labels"
    id_field: str = "id"
    delimiter: str | None = None  # between CSV fields; None: comma, or what the header line uses
    label_separator: str | None = None
    column_names: Sequence[str] | None = None  # of a CSV or TSV file without a header line
    quoted: bool | None = None  # whether double quotes protect fields; None: in CSV, not in TSV
    encoding: str = "utf-8"
    n_features: int | None = None  # number of svmlight features; None: as many as occur
    # Features besides texts: those that a data set folder has, none, or those of this file.
    features: bool | str | os.PathLike[str] = True
    labels: bool = True  # False: JSON and tables are read for their texts alone
    columns: bool = False  # keep all columns of tables, as ``Document.columns``
    skip_bad: bool = False  # count and report bad lines instead of stopping at the first one

    def text_fields(self, default: Sequence[str] = ("text",)) -> tuple[str, ...]:
        """Names of the text fields; ``default`` if the option was not set."""
        if self.text_field == "text":
            return tuple(default)
        fields = listed(self.text_field)
        if not fields:
            raise ConfigError("text_field: must name at least one field")
        return fields

    def names(self, default: Sequence[str] = ("text",)) -> FieldNames | None:
        """The names of all fields of a record; None for plain texts.

        >>> ReadOptions(text_field="title", fields="creator,series").names()
        FieldNames(texts=('title',), fields=('creator', 'series'))
        """
        if self.fields is None:
            return None
        names = FieldNames(self.text_fields(default), listed(self.fields))
        for other in (self.labels_field, "weights", self.id_field):
            if other in names.fields:
                raise ConfigError(
                    f"field: {other!r} is read as labels, weights or ids of documents; it cannot "
                    "be a catalogue field"
                )
        return names


@dataclass
class ReadReport:
    """What a reader found; duplicate ids and labels only where a whole corpus is read."""

    documents: int = 0
    bad_lines: int = 0
    bad_examples: list[str] = field(default_factory=list)
    empty_texts: int = 0
    without_labels: int = 0
    duplicate_ids: int = 0
    duplicate_labels: int = 0  # the same label twice on one document; it counts once
    unknown_labels: int = 0  # occurrences of labels that the given index does not have
    unused_names: int = 0  # labels of the label table that no document has
    merged_labels: bool = False  # labels that differed only in the spelling of accents; a note
    notes: list[str] = field(default_factory=list)
    empty_fields: dict[str, str] = field(default_factory=dict)  # sentences by catalogue field

    def bad(self, error: DataError) -> None:
        """Counts a bad line and stores it as an example if it is one of the first."""
        self.bad_lines += 1
        if len(self.bad_examples) < MAX_EXAMPLES:
            self.bad_examples.append(str(error))

    def count(self, labels: CSR) -> None:
        """Counts the rows of a label matrix as documents."""
        self.documents += labels.shape[0]
        self.without_labels += int(np.count_nonzero(np.diff(labels.indptr) == 0))

    def note(self, text: str) -> None:
        """Stores a remark once, however often it is made."""
        if text not in self.notes:
            self.notes.append(text)

    def add(self, other: ReadReport) -> None:
        for each in fields(self):
            one, more = getattr(self, each.name), getattr(other, each.name)
            both = one | more if isinstance(one, (bool, dict)) else one + more
            setattr(self, each.name, both)
        self.bad_examples = self.bad_examples[:MAX_EXAMPLES]
        self.notes = list(dict.fromkeys(self.notes))

    def __str__(self) -> str:
        counts = (
            (self.bad_lines, "bad line{} skipped"),
            (self.empty_texts, "empty text{}"),
            (self.without_labels, "document{} without labels"),
            (self.duplicate_ids, "duplicate id{}"),
            (self.duplicate_labels, "duplicate label{}"),
            (self.unknown_labels, "unknown label{}"),
        )
        parts = [(self.documents, "document{}"), *(part for part in counts if part[0])]
        summary = "; ".join(f"{n:,} {name.format('s' * (n != 1))}" for n, name in parts)
        notes = [*self.notes, *self.empty_fields.values()]
        return "\n".join([summary, *notes, *self.bad_examples])


class BadLine(ValueError):
    """Raised by a parser that does not know file and line; its caller adds them."""
