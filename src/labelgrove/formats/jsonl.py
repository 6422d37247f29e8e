"""JSON lines: one object per line, ``{"text": ..., "labels": [...], "id": ...}``.

Labels are strings or whole numbers. Weights come as a mapping ``{"shoes": 0.5}``, as pairs
``[["shoes", 0.5]]``, or as a list ``"weights"`` beside the labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labelgrove.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.formats.files import parse_lines

# Weights end up as float32 and must not turn into zero or infinity there.
MIN_WEIGHT, MAX_WEIGHT = 1e-45, 3.4028234e38


def iter_jsonl(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """Documents of a JSONL file, one at a time."""
    return parse_lines(path, document_parser(options, report), options, report)


def document_parser(options: ReadOptions, report: ReadReport) -> Callable[[str], Document]:
    """A function from a line to its document; refuses a line with BadLine."""
    text_fields = options.text_fields()

    def parse(line: str) -> Document:
        record = parse_object(line)
        text = joined_text(record, text_fields)
        for name in text_fields:
            if name not in record:
                report.note(f"some documents have no field {name!r}")
        labels = record.get(options.labels_field)
        if labels is None and options.labels_field not in record:
            report.note(
                f"some documents have no field {options.labels_field!r} (the first of them has "
                f"{_field_list(record)})"
            )
        weights = record.get(options.weights_field)
        return Document(
            text,
            document_labels(labels, weights, options.labels_field, report),
            document_id(record.get(options.id_field), options.id_field),
        )

    return parse


def parse_object(line: str) -> dict[str, Any]:
    """The JSON object on a line.

    >>> parse_object('{"text": "x"}')
    {'text': 'x'}
    """
    try:
        record = json.loads(line)
    except RecursionError as error:
        raise BadLine("not valid JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        raise BadLine(f"not valid JSON: {error.msg} at character {error.pos + 1}") from error
    except ValueError as error:  # a number of thousands of digits
        raise BadLine(f"not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise BadLine(f"holds {_kind(record)}, not an object; every line must be one JSON object")
    return record


def joined_text(record: Mapping[str, Any], fields: Sequence[str]) -> str:
    """Text of the fields that the record has, joined by newlines; at least one must be there.

    >>> joined_text({"title": "Red", "content": "A shoe"}, ["title", "content"])
    'Red\\nA shoe'
    """
    if len(fields) == 1:
        text = record.get(fields[0])
        if type(text) is str:
            return text
    found = [(name, record[name]) for name in fields if record.get(name) is not None]
    if not found:
        wanted = " or ".join(repr(name) for name in fields)
        if any(name in record for name in fields):
            raise BadLine(f"field {wanted} is null")
        raise BadLine(f"no text in field {wanted}; the fields are {_field_list(record)}")
    for name, text in found:
        if not isinstance(text, str):
            raise BadLine(f"field {name!r} holds {_kind(text)}, not a string")
    return "\n".join(text for _, text in found if text)


def document_labels(
    labels: Any, weights: Any, field: str, report: ReadReport
) -> Mapping[str, float] | Sequence[str]:
    """Labels of a record in any of the shapes that are allowed.

    >>> document_labels([7, "x"], None, "labels", ReadReport())
    ['7', 'x']
    >>> document_labels([["x", 0.5]], None, "labels", ReadReport())
    {'x': 0.5}
    """
    if labels is None:
        return []
    if isinstance(labels, str):
        raise BadLine(f"field {field!r} holds a string; give a list: [{labels!r}]")
    if isinstance(labels, Mapping):
        return _weighted(labels.items(), field, report)
    if not isinstance(labels, list):
        raise BadLine(f"field {field!r} holds {_kind(labels)}, not a list")
    if weights is not None:
        if not isinstance(weights, list) or len(weights) != len(labels):
            raise BadLine(f"the weights are not a list as long as field {field!r}")
        return _weighted(zip(labels, weights, strict=True), field, report)
    if labels and isinstance(labels[0], list):
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in labels):
            raise BadLine(f"field {field!r} mixes [label, weight] pairs with something else")
        return _weighted(labels, field, report)
    for label in labels:
        if type(label) is not str or not label:
            return [label_id(label, field) for label in labels]
    return labels


def _weighted(pairs: Iterable[Any], field: str, report: ReadReport) -> dict[str, float]:
    weighted: dict[str, float] = {}
    for label, weight in pairs:
        name = label_id(label, field)
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not number or not MIN_WEIGHT <= weight <= MAX_WEIGHT:
            raise BadLine(f"weight of label {name!r} must be a number > 0, got {weight!r:.40}")
        if name in weighted:
            report.duplicate_labels += 1
        weighted[name] = max(float(weight), weighted.get(name, 0.0))
    return weighted


def label_id(label: Any, field: str) -> str:
    """A label of a file as a string; numbers are welcome, empty strings are not.

    >>> label_id(12, "labels")
    '12'
    """
    if isinstance(label, str):
        if not label:
            raise BadLine(f"field {field!r} holds an empty label")
        return label
    if isinstance(label, int) and not isinstance(label, bool):
        return str(label)
    raise BadLine(f"field {field!r}: a label is {_kind(label)}, not a string or whole number")


def document_id(value: Any, field: str) -> str | None:
    """A document's id as a string, None where it has none."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadLine(f"field {field!r} holds {_kind(value)}, not a string or whole number")


def dump_document(document: Document) -> bytes:
    """A document as one line of JSON, with its newline.

    >>> dump_document(Document("Grün", ["a"]))
    b'{"text": "Gr\\xc3\\xbcn", "labels": ["a"]}\\n'
    """
    labels = document.labels
    record: dict[str, Any] = {} if document.id is None else {"id": document.id}
    record["text"] = document.text
    record["labels"] = dict(labels) if isinstance(labels, Mapping) else list(labels)
    return json_line(record)


def json_line(record: Mapping[str, Any]) -> bytes:
    """One line of JSON in UTF-8, with its newline.

    >>> json_line({"a": "ü"})
    b'{"a": "\\xc3\\xbc"}\\n'
    """
    try:
        return (json.dumps(record, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form, but an escape
        return (json.dumps(record) + "\n").encode()


def _field_list(record: Mapping[str, Any]) -> str:
    names = [repr(name) for name in list(record)[:8]]
    return ", ".join(names) + (" ..." if len(record) > 8 else "") if names else "none at all"


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = ((bool, "true or false"), (str, "a string"), (list, "a list"), (dict, "an object"))
    for kind, name in kinds:
        if isinstance(value, kind):
            return name
    return "a number" if isinstance(value, (int, float)) else f"a {type(value).__name__}"
