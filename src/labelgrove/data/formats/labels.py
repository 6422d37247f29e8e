"""Label tables: names and texts for label ids, one ``id TAB name [TAB text]`` per line."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from pathlib import Path
from typing import NamedTuple, TypeAlias

from labelgrove.core.nfc import nfc
from labelgrove.data.corpus import LabelIndex, merged_labels
from labelgrove.data.formats.annif import without_brackets
from labelgrove.data.formats.documents import ReadReport
from labelgrove.data.formats.files import existing, read_all, replacing, sibling
from labelgrove.errors import DataError, warn


class NamedRow(NamedTuple):
    id: str
    name: str
    text: str | None = None


LabelTable: TypeAlias = Sequence[NamedRow]


def read_label_table(path: str | os.PathLike[str]) -> list[NamedRow]:
    """Rows of a label table; a first line ``id TAB name`` is a header.

    Without a name, the id is the name. Angle brackets around a URI, as in Annif's vocabularies,
    are removed. Of ids that differ only in the spelling of accents, the first row counts.
    """
    file = existing(path)
    rows: dict[str, NamedRow] = {}
    line_of: dict[str, int] = {}
    for number, line in read_all(file, as_spelled=True):
        if not line.strip():
            continue
        label, _, rest = line.partition("\t")
        name, _, text = rest.partition("\t")
        if number == 1 and (label.lower(), name.lower()) == ("id", "name"):
            continue
        label = without_brackets(label)
        if not label:
            raise DataError("the label id is empty", file=file, line=number)
        if label in line_of:
            raise DataError(
                f"label id {label!r} is already on line {line_of[label]}", file=file, line=number
            )
        line_of[label] = number
        row = NamedRow(nfc(label), nfc(name or label), nfc(text) or None)
        rows.setdefault(row.id, row)
    if merged := merged_labels(line_of):
        warn(f"{file}: {merged}")
    return list(rows.values())


def write_label_table(index: LabelIndex, path: str | os.PathLike[str]) -> None:
    """Writes an index as a label table; DataError if an id, name or text has a tab or line end."""
    columns = [index.ids, index.names]
    if index.texts is not None:
        columns.append(index.texts)
    with replacing(path) as file:
        for row in zip(*columns, strict=True):
            line = "\t".join(row)
            if line.count("\t") != len(row) - 1 or "\n" in line or "\r" in line:
                reason = f"label {row[0]!r}: a label table cannot hold tabs or line ends"
                raise DataError(reason, file=Path(path))
            file.write(line.encode("utf-8", "surrogatepass") + b"\n")


def find_label_table(path: Path) -> Path | None:
    """``labels.tsv`` beside a file or in a folder, compressed or not."""
    return sibling(path if path.is_dir() else path.parent, "labels.tsv")


def index_of(
    occurring: Set[str], names: LabelTable | None, report: ReadReport, *, all_labels: bool
) -> LabelIndex:
    """The index of the labels that documents have, and with ``all_labels`` those of the table."""
    unused = {nfc(row.id) for row in names or ()} - occurring
    report.unused_names += len(unused)
    ids = sorted(occurring | unused if all_labels else occurring)
    return index_with_names(ids, names, listed=all_labels)


def index_with_names(
    ids: Sequence[str], names: LabelTable | None, *, listed: bool = False
) -> LabelIndex:
    """An index of these ids, named by the table; ``listed``: they have all labels of the table."""
    distinct = set(ids) if names else set()
    row_of = {id: row for row in names or () if (id := nfc(row.id)) in distinct}
    if not row_of:
        return LabelIndex(ids, listed=False)
    rows = [row_of.get(label) or NamedRow(label, label) for label in ids]
    has_texts = any(row.text is not None for row in rows)
    return LabelIndex(
        ids,
        names=[nfc(row.name) for row in rows],
        texts=[row.name if row.text is None else row.text for row in rows] if has_texts else None,
        listed=[listed and label in row_of for label in ids],
    )
