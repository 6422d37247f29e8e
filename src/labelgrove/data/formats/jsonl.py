"""JSON lines: one object per line, ``{"text": ..., "labels": [...], "id": ...}``; JSON arrays.

Labels are strings or whole numbers. Weights are a mapping ``{"shoes": 0.5}``, or a list
``"weights"`` as long as the labels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from labelgrove.core.jsonio import JsonObject
from labelgrove.data.formats import files
from labelgrove.data.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import parse_lines
from labelgrove.data.records import field_parts, is_record, text_parts
from labelgrove.errors import DataError

# Weights become float32 and must not turn into zero or infinity.
MIN_WEIGHT, MAX_WEIGHT = 1e-45, 3.4028234e38


def iter_jsonl(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    parse = record_parser(options, report)
    return parse_lines(path, lambda line: parse(parse_object(line)), options, report)


def iter_json_array(
    path: Path | str, options: ReadOptions, report: ReadReport
) -> Iterator[Document]:
    """The documents of a JSON array, which is read as a whole; pandas would read "007" as 7."""
    encoding = files.check_encoding(options.encoding)
    try:
        with files.open_bytes(path) as stream:
            content = stream.read()
        elements = json.loads(files.decode(content.removeprefix(b"\xef\xbb\xbf"), encoding))
    except files.READ_ERRORS as error:
        raise files.damaged(error, path) from error
    except json.JSONDecodeError as error:
        raise DataError(f"not valid JSON: {error.msg}", file=path, line=error.lineno) from None
    except BadLine as error:
        raise DataError(str(error), file=path) from error
    except (ValueError, RecursionError) as error:  # too many digits, or nested too deeply
        raise DataError(f"not valid JSON: {error}", file=path) from None
    del content
    if not isinstance(elements, list):
        raise DataError("is not a JSON array", file=path)
    parse = record_parser(options, report)
    for number, element in enumerate(elements, start=1):
        try:
            document = parse(as_object(element, "every element"))
        except BadLine as error:
            files.refuse(DataError(f"element {number}: {error}", file=path), options, report)
            continue
        yield document


def record_parser(options: ReadOptions, report: ReadReport) -> Callable[[JsonObject], Document]:
    """A function that makes a document of a JSON object or raises BadLine."""
    text_fields = options.text_fields()
    text_of = text_reader(options, report, text_fields)

    def parse(record: JsonObject) -> Document:
        text = text_of(record)
        for name in text_fields:
            if name not in record:
                report.note(f"some documents have no field {name!r}")
        labels = record.get(options.labels_field) if options.labels else None
        if options.labels and options.labels_field not in record:
            report.note(
                f"some documents have no field {options.labels_field!r} (the first of them has "
                f"{_field_list(record)}). Set labels_field (--labels-field) if it is another one"
            )
        weights = record.get("weights")
        return Document(
            text,
            document_labels(labels, weights, options.labels_field, report),
            document_id(record.get(options.id_field), options.id_field),
        )

    return parse


def parse_object(line: str) -> JsonObject:
    try:
        record = json.loads(line)
    except RecursionError as error:
        raise BadLine("not valid JSON: nested too deeply") from error
    except json.JSONDecodeError as error:
        comma = line[: error.pos].rstrip().endswith(",") and line[error.pos : error.pos + 1] in "]}"
        comma = comma or error.msg.startswith("Illegal trailing comma")  # since Python 3.13
        reason = "a comma too many" if comma else error.msg
        raise BadLine(f"not valid JSON: {reason} at character {error.pos + 1}") from error
    except ValueError as error:  # a number of thousands of digits
        raise BadLine(f"not valid JSON: {error}") from error
    return as_object(record, "every line")


def as_object(value: object, what: str) -> JsonObject:
    if not isinstance(value, dict):
        raise BadLine(f"{what} must be a JSON object, but this one is {_kind(value)}")
    return value


def text_reader(
    options: ReadOptions, report: ReadReport, text_fields: Sequence[str]
) -> Callable[[JsonObject], str]:
    """A function from an object to its text, which is a record if there are catalogue fields."""
    names = options.names(text_fields)
    if names is None:
        return lambda record: joined_text(record, text_fields)
    first = True

    def read(record: JsonObject) -> str:
        nonlocal first
        joined_text(record, text_fields)  # at least one text, and all of them strings
        try:
            text = names.record(record)
        except DataError as error:
            raise BadLine(str(error)) from None
        if first:
            first = False
            for name in names.fields:
                report.empty_fields[name] = (
                    f"no document has a value in the field {name!r}; the first has the fields "
                    f"{_field_list(record)}"
                )
        for name in list(report.empty_fields):
            if record.get(name) not in (None, "", []):
                del report.empty_fields[name]
        return text

    return read


def joined_text(record: JsonObject, fields: Sequence[str]) -> str:
    """The text of the record's fields, joined by newlines; at least one field must exist."""
    if len(fields) == 1:
        text = record.get(fields[0])
        if type(text) is str:
            return text
    texts = {name: record[name] for name in fields if record.get(name) is not None}
    if not texts:
        names = " or ".join(repr(name) for name in fields)
        if any(name in record for name in fields):
            raise BadLine(f"field {names} is null")
        raise BadLine(
            f"there is no field {names}; the fields are {_field_list(record)}. Set text_field "
            "(--text-field)"
        )
    for name, text in texts.items():
        if not isinstance(text, str):
            raise BadLine(f"field {name!r} must be a string, but is {_kind(text)}")
    return "\n".join(text for text in texts.values() if text)


def document_labels(
    labels: object, weights: object, field: str, report: ReadReport
) -> Mapping[str, float] | Sequence[str]:
    """The labels of a record in any of the allowed shapes.

    >>> document_labels([7, "x"], None, "labels", ReadReport())
    ['7', 'x']
    >>> document_labels(["x"], [0.5], "labels", ReadReport())
    {'x': 0.5}
    """
    if labels is None:
        return []
    if isinstance(labels, str):
        raise BadLine(f"field {field!r} is a string; write a list: [{labels!r}]")
    if isinstance(labels, Mapping):
        return _weighted(labels.items(), field, report)
    if not isinstance(labels, list):
        raise BadLine(f"field {field!r} must be a list, but is {_kind(labels)}")
    if weights is not None:
        if not isinstance(weights, list) or len(weights) != len(labels):
            raise BadLine(f"the weights must be a list as long as field {field!r}")
        return _weighted(zip(labels, weights, strict=True), field, report)
    for label in labels:
        if type(label) is not str or not label:
            return [label_id(label, field) for label in labels]
    return labels


def _weighted(
    pairs: Iterable[Iterable[object]], field: str, report: ReadReport
) -> dict[str, float]:
    weighted: dict[str, float] = {}
    for label, weight in pairs:
        name = label_id(label, field)
        if (
            not isinstance(weight, (int, float))
            or isinstance(weight, bool)
            or not MIN_WEIGHT <= weight <= MAX_WEIGHT
        ):
            raise BadLine(f"weight of label {name!r} must be a number > 0, got {weight!r:.40}")
        if name in weighted:
            report.duplicate_labels += 1
        weighted[name] = max(float(weight), weighted.get(name, 0.0))
    return weighted


def label_id(label: object, field: str) -> str:
    """A label as a string; it may be a whole number, but not an empty string."""
    if label == "":
        raise BadLine(f"field {field!r} has an empty label")
    return _string(label, f"a label in field {field!r}")


def document_id(value: object, field: str) -> str | None:
    """A document's id as a string; None for a missing or empty one."""
    return None if value is None or value == "" else _string(value, f"field {field!r}")


def _string(value: object, what: str) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise BadLine(f"{what} must be a string or a whole number, but is {_kind(value)}")


def dump_document(document: Document) -> bytes:
    """A document as one line of JSON, with its newline."""
    return json_line(document_record(document))


def document_record(document: Document) -> JsonObject:
    """A document as a JSON object; empty fields are left out."""
    labels = document.labels
    record: JsonObject = {} if document.id is None else {"id": document.id}
    if is_record(document.text):
        record |= {name: text for name, text in text_parts(document.text).items() if text}
        record |= {name: values for name, values in field_parts(document.text).items() if values}
    else:
        record["text"] = document.text
    record["labels"] = dict(labels) if isinstance(labels, Mapping) else list(labels)
    return record


def json_line(record: JsonObject) -> bytes:
    """One line of JSON in UTF-8, with its newline."""
    try:
        return (json.dumps(record, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form, only an escape
        return (json.dumps(record) + "\n").encode()


def _field_list(record: JsonObject) -> str:
    names = [repr(name) for name in list(record)[:8]]
    return ", ".join(names) + (" ..." if len(record) > 8 else "") if names else "none"


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "true or false", str: "a string", list: "a list"}
    names |= {dict: "an object", int: "a number", float: "a decimal number"}
    return names.get(type(value), f"a {type(value).__name__}")
