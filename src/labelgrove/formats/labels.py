"""Label tables: names and texts for label ids, one ``id TAB name [TAB text]`` per line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import DataError
from labelgrove.formats.annif import without_brackets
from labelgrove.formats.files import existing, read_all, replacing, sibling


class LabelRow(NamedTuple):
    """What a label table knows of one label.

    >>> LabelRow("c1", "cats").text is None
    True
    """

    id: str
    name: str
    text: str | None = None


LabelTable: TypeAlias = Sequence[LabelRow]


def read_label_table(path: str | os.PathLike[str]) -> list[LabelRow]:
    """Rows of a label table; a first line ``id TAB name`` is taken for a header.

    Where the name is missing or empty, the id is the name. Angle brackets around a URI, as in
    Annif's vocabularies, are taken off.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "labels.tsv")
    ...     _ = table.write_text("c1\\tcats\\nc2\\tdogs\\tfriends of people\\n")
    ...     [tuple(row) for row in read_label_table(table)]
    [('c1', 'cats', None), ('c2', 'dogs', 'friends of people')]
    """
    file = existing(path)
    rows: list[LabelRow] = []
    line_of: dict[str, int] = {}
    for number, line in read_all(file):
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
                f"label id {label!r} stands on line {line_of[label]} already",
                file=file,
                line=number,
            )
        line_of[label] = number
        rows.append(LabelRow(label, name or label, text or None))
    return rows


def write_label_table(index: LabelIndex, path: str | os.PathLike[str]) -> None:
    """The index as a label table; DataError for an id, name or text that a line cannot hold.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_label_table(LabelIndex(["c1"], names=["cats"]), Path(folder, "labels.tsv"))
    ...     Path(folder, "labels.tsv").read_text()
    'c1\\tcats\\n'
    """
    columns = (
        [index.ids, index.names]
        if index.texts is None
        else [
            index.ids,
            index.names,
            index.texts,
        ]
    )
    with replacing(path) as file:
        for row in zip(*columns, strict=True):
            line = "\t".join(row)
            if line.count("\t") != len(row) - 1 or "\n" in line or "\r" in line:
                raise DataError(
                    f"label {row[0]!r}: tabs and line ends cannot stand in a label table",
                    file=Path(path),
                )
            file.write(line.encode("utf-8", "surrogatepass") + b"\n")


def find_label_table(path: Path) -> Path | None:
    """``labels.tsv`` beside a file or in a folder, compressed or not."""
    return sibling(path if path.is_dir() else path.parent, "labels.tsv")


def index_with_names(ids: Sequence[str], names: LabelTable | None) -> LabelIndex:
    """An index of exactly these ids; the table gives names and texts where it knows them.

    A label without a text of its own has its name as text when others have texts.

    >>> index = index_with_names(["c1", "c9"], [LabelRow("c1", "cats")])
    >>> list(index.names)
    ['cats', 'c9']
    """
    wanted = set(ids) if names else set()
    known = {row.id: row for row in names or () if row.id in wanted}
    if not known:
        return LabelIndex(ids)
    rows = [known.get(label) or LabelRow(label, label) for label in ids]
    has_texts = any(row.text is not None for row in rows)
    return LabelIndex(
        ids,
        names=[row.name for row in rows],
        texts=[row.name if row.text is None else row.text for row in rows] if has_texts else None,
    )
