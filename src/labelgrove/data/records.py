"""Documents with fields: texts such as a title and an abstract, and what a catalogue says of them.

A document with fields is one string, a record, so that everything that splits, batches, hashes or
stores documents handles records like other texts. It begins with START. Then come the texts, each
after TEXT and its name; then the catalogue fields, each after FIELD and its name; VALUE is before a
text and before each value of a field. The marks are control characters, so that a text in Latin
letters stays one byte per character. In texts and values they become spaces on the way in. A string
that does not begin with START and TEXT is a plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from labelgrove.core.nfc import nfc
from labelgrove.core.strings import StringTable
from labelgrove.data.frames import Frame, frame_rows, is_frame, is_missing
from labelgrove.errors import ConfigError, DataError, warn

START, TEXT, FIELD, VALUE = "\x02", "\x1c", "\x1d", "\x1f"
_BEGIN = START + TEXT
_MARKS = dict.fromkeys(map(ord, (TEXT, FIELD, VALUE)), " ")
BETWEEN = ": "  # the name of a field and the value, in terms and for people


@dataclass(frozen=True)
class FieldNames:
    """The names of the text fields and of the catalogue fields that a corpus or a model has."""

    texts: tuple[str, ...]
    fields: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (*self.texts, *self.fields)
        if not self.texts:
            raise ConfigError("documents with fields need at least one text field")
        for name in names:
            if not isinstance(name, str) or not name.strip() or name != _clean(name):
                raise ConfigError(f"{name!r} cannot be the name of a field")
            if BETWEEN in name:
                raise ConfigError(f"the name of the field {name!r} must not contain {BETWEEN!r}")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(f"the field {twice!r} is named twice")

    @classmethod
    def from_dict(cls, stored: Mapping[str, list[str]]) -> FieldNames:
        """The names that a model folder holds."""
        try:
            return cls(tuple(stored["texts"]), tuple(stored["fields"]))
        except (TypeError, KeyError, ConfigError) as error:
            raise DataError(f"the names of fields are damaged: {error}") from error

    def to_dict(self) -> dict[str, list[str]]:
        """For a model folder."""
        return {"texts": list(self.texts), "fields": list(self.fields)}

    def __str__(self) -> str:
        texts = ", ".join(self.texts)
        return f"{texts}; fields {', '.join(self.fields)}" if self.fields else texts

    def record(self, row: Mapping[str, object]) -> str:
        """A document from its fields by name; those that are missing or None stay empty."""
        pieces = [START]
        for name in self.texts:
            text = row.get(name)
            if is_missing(text):
                text = ""
            elif not isinstance(text, str):
                raise DataError(f"field {name!r} must be a string, but is {type(text).__name__}")
            pieces.append(f"{TEXT}{name}{VALUE}{_clean(text)}")
        for name in self.fields:
            pieces.append(FIELD + name)
            pieces += [VALUE + value for value in field_values(row.get(name), name)]
        return "".join(pieces)

    def records(self, rows: Frame | Iterable[object]) -> list[str]:
        """Records of mappings or of a frame's rows; strings among them stay as they are."""
        records = []
        known = {*self.texts, *self.fields}
        if is_frame(rows):  # a table may have columns that nobody reads
            rows = [{n: v for n, v in row.items() if n in known} for row in frame_rows(rows)]
        for number, row in enumerate(rows):
            if isinstance(row, str):
                records.append(row)
                continue
            if not isinstance(row, Mapping):
                raise DataError(f"document {number} is {row!r:.60}, not a mapping")
            if unknown := [name for name in row if name not in known]:
                raise DataError(
                    f"document {number} has the field {unknown[0]!r}, which is not one of those "
                    f"that are read: {', '.join((*self.texts, *self.fields))}"
                )
            if not any(name in row for name in self.texts):
                raise DataError(
                    f"document {number} has no text: none of {', '.join(self.texts)} is in it"
                )
            try:
                records.append(self.record(row))
            except DataError as error:
                raise DataError(f"document {number}: {error}") from None
        return records


def records(
    rows: Frame | Iterable[object], *, text: str | Sequence[str], fields: str | Sequence[str] = ()
) -> list[str]:
    """Documents with fields, for ``fit`` and all that takes a list of texts.

    ``rows`` are mappings, such as those of a JSON file, or a data frame. ``text`` names what is
    read as text; ``fields`` what is read as it stands: persons, a publisher, a kind. Values are
    strings, numbers or lists of them. A row need not have every field.

    >>> from labelgrove import Linear
    >>> rows = [{"title": "spring", "by": "Springer"}, {"title": "summer", "by": "Wiley"}]
    >>> model = Linear().fit(records(rows, text="title", fields="by"), [["a"], ["b"]])
    >>> model.predict([{"title": "autumn", "by": "Wiley"}], k=1).names()
    [['b']]
    """
    names = FieldNames(listed(text), listed(fields))
    columns = (*names.texts, *names.fields)
    if is_frame(rows):
        rows = frame_rows(rows)
    rows = list(rows)
    for name in columns:
        if rows and not any(isinstance(row, Mapping) and name in row for row in rows):
            has = ", ".join(map(str, rows[0])) if isinstance(rows[0], Mapping) else "no fields"
            raise DataError(f"no document has the field {name!r}; the first has {has}")
    picked = [
        {name: row[name] for name in columns if name in row} if isinstance(row, Mapping) else row
        for row in rows
    ]
    documents = names.records(picked)
    for name in empty_fields(documents):
        warn(f"no document has a value in the field {name!r}")
    return documents


def listed(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of fields, given as a list or with commas between them."""
    given = names.split(",") if isinstance(names, str) else names
    return tuple(name.strip() for name in given if name.strip())


def is_record(text: str) -> bool:
    """Whether a document has fields."""
    return text[:2] == _BEGIN


def has_records(texts: Iterable[object]) -> bool:
    """Whether any of the documents has fields."""
    if not isinstance(texts, StringTable):
        return any(isinstance(text, str) and text[:2] == _BEGIN for text in texts)
    starts = texts.offsets[:-1]
    starts = starts[texts.offsets[1:] - starts >= len(_BEGIN)]
    for place, byte in enumerate(_BEGIN.encode()):
        starts = starts[texts.blob[starts + place] == byte]
    return len(starts) > 0


def text_parts(text: str) -> dict[str, str]:
    """The texts of a record by name; of a plain text, the text with an empty name."""
    if not is_record(text):
        return {"": text}
    sections = text.partition(FIELD)[0].split(TEXT)[1:]
    return {name: part for name, _, part in (section.partition(VALUE) for section in sections)}


def field_parts(text: str) -> dict[str, list[str]]:
    """The values of a record's catalogue fields by name."""
    if not is_record(text):
        return {}
    sections = [section.split(VALUE) for section in text.split(FIELD)[1:]]
    return {name: values for name, *values in sections}


def words_of(text: str) -> str:
    """The texts of a document, one after the other on lines of their own, without its fields."""
    return "\n".join(filter(None, text_parts(text).values())) if is_record(text) else text


def plain_texts(texts: Sequence[str]) -> Sequence[str]:
    """The texts of all documents without their fields; the same object if none has any."""
    if not has_records(texts):
        return texts
    words = map(plain_text, texts)
    return StringTable.from_strings(words) if isinstance(texts, StringTable) else list(words)


def plain_text(text: str) -> str:
    """The text of a document without its fields; what is no text stays as it is."""
    return words_of(text) if isinstance(text, str) else text


def field_terms(text: str) -> list[str]:
    """What tf-idf counts of a record's fields: every value with its field's name before it."""
    return [_term(name, value) for name, own in field_parts(text).items() for value in own]


@lru_cache(1 << 16)  # many documents have the same publisher
def _term(name: str, value: str) -> str:
    return f"{name}{BETWEEN}{' '.join(nfc(value).casefold().split())}"


def names_in(texts: Iterable[str]) -> FieldNames | None:
    """The names of the fields that documents have, in the order of their first occurrence."""
    if isinstance(texts, (StringTable, list, tuple)) and not has_records(texts):
        return None
    in_texts: dict[str, None] = {}
    in_fields: dict[str, None] = {}
    heads: set[tuple[str, ...]] = set()  # most documents have the same fields
    for text in texts:
        if isinstance(text, str) and is_record(text):
            head = tuple(section.partition(VALUE)[0] for section in text.split(FIELD)[1:])
            if head not in heads:
                heads.add(head)
                in_fields |= dict.fromkeys(head)
                in_texts |= dict.fromkeys(text_parts(text))
    return FieldNames(tuple(in_texts), tuple(in_fields)) if in_texts else None


def joined_names(parts: Iterable[FieldNames | None]) -> FieldNames | None:
    """The names in documents whose parts have these."""
    known = [part for part in parts if part is not None]
    texts, fields = (
        tuple(dict.fromkeys(name for part in known for name in getattr(part, kind)))
        for kind in ("texts", "fields")
    )
    return FieldNames(texts, fields) if texts else None


def check_names(texts: Iterable[str], known: FieldNames | None) -> None:
    """Refuses documents with fields that a model does not read."""
    given = names_in(texts)
    if given is None:
        return
    if known is None:
        raise DataError(
            f"these documents have fields ({given}), and the model was trained on plain texts; "
            "give it texts, or train it on documents with fields"
        )
    if unknown := [name for name in given.fields if name not in known.fields]:
        raise DataError(
            f"these documents have the field {unknown[0]!r}, and the model reads {known}"
        )


def empty_fields(texts: Iterable[str]) -> list[str]:
    """The fields in which no document has a value."""
    names = names_in(texts)
    filled = {name for text in texts if names for name, own in field_parts(text).items() if own}
    return [name for name in names.fields if name not in filled] if names else []


def field_values(given: object, name: str) -> list[str]:
    """The values of one field: strings, numbers, or a list of them; missing ones are left out."""
    values = given if isinstance(given, (list, tuple)) else [given]
    if isinstance(given, np.ndarray):  # Parquet files give lists as arrays
        values = given.tolist()
    strings = []
    for value in values:
        if is_missing(value):
            continue
        if not isinstance(value, (str, int, float, np.number)):
            kind = type(value).__name__
            raise DataError(f"field {name!r} must be a string, a number or a list, but has {kind}")
        if isinstance(value, (float, np.floating)) and value.is_integer():
            value = int(value)  # pandas makes decimals of whole numbers where some are missing
        if string := " ".join(_clean(str(value)).split()):
            strings.append(string)
    return strings


def _clean(text: str) -> str:
    if not any(mark in text for mark in (TEXT, FIELD, VALUE)):
        return text
    return text.translate(_MARKS)
