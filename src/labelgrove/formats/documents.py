"""What readers give and are told: a document, how to read, and what was met on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labelgrove.errors import ConfigError, DataError

EXAMPLES_KEPT = 5


@dataclass(frozen=True, slots=True)
class Document:
    """One document as read, before labels are columns.

    ``labels`` are ids as they stand in the file: a sequence, or a mapping to weights.

    >>> Document("a red shoe", ["shoes"]).id is None
    True
    """

    text: str
    labels: Mapping[str, float] | Sequence[str]
    id: str | None = None


@dataclass
class ReadOptions:
    """How to read a corpus; every format uses the fields that concern it.

    ``text_field`` may name several fields, ``"title,content"``: those a document has are joined by
    a newline. ``label_separator`` splits the labels column of CSV, TSV and Parquet; None means
    ``|``, or ``;`` where the first rows have only that.

    >>> ReadOptions(text_field="title, content").text_fields()
    ('title', 'content')
    """

    format: str | None = None  # a name of FORMATS; None: look at the file
    part: str = "train"  # which part of a data set folder
    text_field: str | Sequence[str] = "text"
    labels_field: str = "labels"
    weights_field: str = "weights"
    id_field: str = "id"
    delimiter: str | None = None  # between fields of CSV; None: comma, or what the header shows
    label_separator: str | None = None
    column_names: Sequence[str] | None = None  # of a CSV or TSV file without a header line
    quoted: bool | None = None  # do double quotes protect fields? None: in CSV yes, in TSV no
    encoding: str = "utf-8"
    n_features: int | None = None  # width of svmlight features; None: as wide as they are
    features: bool = True  # load ready-made features where a folder has texts too
    skip_bad: bool = False  # count and report bad lines instead of stopping at the first

    def text_fields(self, default: Sequence[str] = ("text",)) -> tuple[str, ...]:
        """Names of the text fields; ``default`` where the option was left alone.

        >>> ReadOptions().text_fields(default=("title", "content"))
        ('title', 'content')
        """
        if self.text_field == "text":
            return tuple(default)
        named = self.text_field
        names = named.split(",") if isinstance(named, str) else named
        fields = tuple(name.strip() for name in names if name.strip())
        if not fields:
            raise ConfigError("text_field: names no field")
        return fields


@dataclass
class ReadReport:
    """What was met while reading: counts, and the first few bad lines with file, line and reason.

    Duplicate ids and labels are counted where a whole corpus is read, not while streaming.

    >>> report = ReadReport(documents=3, empty_texts=1)
    >>> print(report)
    3 documents; 1 empty text
    """

    documents: int = 0
    bad_lines: int = 0
    bad_examples: list[str] = field(default_factory=list)
    empty_texts: int = 0
    without_labels: int = 0
    duplicate_ids: int = 0
    duplicate_labels: int = 0  # the same label twice on one document; it counts once
    unknown_labels: int = 0  # occurrences of labels that the given index does not know
    notes: list[str] = field(default_factory=list)

    def bad(self, error: DataError) -> None:
        """Counts one bad line and keeps the first few as examples.

        >>> report = ReadReport()
        >>> report.bad(DataError("not valid JSON", file="a.jsonl", line=2))
        >>> report.bad_lines, report.bad_examples
        (1, ['a.jsonl, line 2: not valid JSON'])
        """
        self.bad_lines += 1
        if len(self.bad_examples) < EXAMPLES_KEPT:
            self.bad_examples.append(str(error))

    def note(self, text: str) -> None:
        """Keeps a remark once.

        >>> report = ReadReport()
        >>> report.note("x"); report.note("x"); report.notes
        ['x']
        """
        if text not in self.notes:
            self.notes.append(text)

    def __str__(self) -> str:
        counts = (
            (self.documents, "document", "documents"),
            (self.bad_lines, "bad line skipped", "bad lines skipped"),
            (self.empty_texts, "empty text", "empty texts"),
            (self.without_labels, "document without labels", "documents without labels"),
            (self.duplicate_ids, "duplicate id", "duplicate ids"),
            (self.duplicate_labels, "duplicate label", "duplicate labels"),
            (self.unknown_labels, "unknown label", "unknown labels"),
        )
        parts = [
            f"{count:,} {one if count == 1 else many}"
            for count, one, many in counts
            if count or one == "document"
        ]
        return "\n".join(["; ".join(parts), *self.notes, *self.bad_examples])


class BadLine(ValueError):
    """Raised by a parser that does not know where it is; the caller adds file and line."""
