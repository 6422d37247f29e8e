"""``projects.cfg`` and SKOS files of strangers: nothing is fetched, and the work is in proportion.

Python's configparser takes hours for some short files, rdflib for some texts in XML, and rdflib
reads whatever a JSON-LD file names as its context.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from labelgrove.core.jsonio import JsonObject
from labelgrove.data.formats.files import read_all
from labelgrove.errors import ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
    from rdflib import Graph

SHARED = "DEFAULT"  # the section whose keys all others have
MOST_REPLACED = 1_000_000  # characters that references add to a file, all together
LONGEST_TEXT = 100_000  # characters of a name or note; rdflib joins its pieces one by one
LONGEST_ENTITY = 200  # characters; entities in RDF are beginnings of URIs
_REFERENCE = re.compile(r"%%|%\(([^()]*)\)s")


def read_sections(path: Path) -> dict[str, dict[str, str]]:
    """The sections of a ``projects.cfg``, with the values of ``%(key)s`` in place."""
    sections: dict[str, dict[str, list[str]]] = {}
    values: dict[str, list[str]] | None = None
    lines: list[str] | None = None
    for number, line in read_all(path):
        text = line.strip()
        if not text or text[0] in "#;":
            continue
        if lines is not None and line[0].isspace():
            lines.append(text)
        elif text[0] == "[" and text[-1] == "]":
            values, lines = sections.setdefault(text[1:-1], {}), None
        else:
            equals = re.search("[=:]", text)
            if values is None or equals is None or not equals.start():
                raise ConfigError(
                    f"{path}, line {number}: is no projects.cfg of Annif; expected [project] or "
                    f"key=value, got {text[:60]!r}"
                )
            key = text[: equals.start()].rstrip()
            if key in values:
                raise ConfigError(f"{path}, line {number}: {key} occurs twice in its section")
            lines = values[key] = [text[equals.end() :].strip()]
    joined = {
        name: {key: "\n".join(value) for key, value in section.items()}
        for name, section in sections.items()
    }
    shared, left = joined.pop(SHARED, {}), MOST_REPLACED
    for name, section in joined.items():
        section = shared | section
        joined[name] = {}
        for key, value in section.items():
            value, size = _replaced(value, section, left, f"{path}: [{name}] {key}")
            joined[name][key], left = value, left - size
    return joined


def _replaced(value: str, section: Mapping[str, str], left: int, where: str) -> tuple[str, int]:
    """A value with its references replaced, and by how many characters at most it grew."""
    size = 0
    for _ in range(10):  # as deep as configparser goes
        names = [match[1] for match in _REFERENCE.finditer(value) if match[1] is not None]
        if not names:
            return value.replace("%%", "%"), size
        if missing := [name for name in names if name not in section]:
            raise ConfigError(f"{where}: refers to {missing[0]}, which its section does not have")
        size += sum(len(section[name]) for name in names)
        if size > left:
            break
        value = _REFERENCE.sub(lambda m: m[0] if m[1] is None else section[m[1]], value)
    raise ConfigError(
        f"{where}: references such as %(key)s must end after ten steps and add at most "
        f"{MOST_REPLACED:,} characters to the file; write the values out"
    )


def read_graph(file: Path) -> Graph:
    """The triples of an RDF file; needs the extra skos."""
    try:
        import rdflib
    except ImportError as error:
        raise MissingExtraError("skos", f"reading {file.name}") from error
    format = rdflib.util.guess_format(file.name)
    try:
        content = file.read_bytes()
        if format == "xml":
            _check_xml(content, file)
        elif format == "json-ld":
            _check_contexts(json.loads(content), file)
        elif format == "nt" and any(len(line) > LONGEST_TEXT for line in content.splitlines()):
            raise _too_long(file)
        graph = rdflib.Graph()
        return graph.parse(data=content, format=format, publicID=file.absolute().as_uri())
    except (DataError, MemoryError):
        raise
    except Exception as error:  # each of rdflib's parsers has errors of its own
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise DataError(f"cannot be read as RDF: {reason}", file=file) from error


def _check_xml(content: bytes, file: Path) -> None:
    """Refuses entities that are elsewhere, long or made of others, and texts without end."""
    from xml.parsers import expat

    size = 0

    def begin(*_: object) -> None:
        nonlocal size
        size = 0

    def add(text: str) -> None:
        nonlocal size
        size += len(text)
        if size > LONGEST_TEXT:
            raise _too_long(file)

    def declare(name: str, is_parameter: bool, value: str | None, *_: object) -> None:
        if is_parameter or value is None or "&" in value or len(value) > LONGEST_ENTITY:
            raise DataError(
                f"declares the entity {name}, which is outside the file, made of others or longer "
                f"than {LONGEST_ENTITY} characters; replace it by its text",
                file=file,
            )

    parser = expat.ParserCreate()
    parser.StartElementHandler = parser.EndElementHandler = begin
    parser.CharacterDataHandler, parser.EntityDeclHandler = add, declare
    parser.Parse(content, True)


def _check_contexts(document: object, file: Path) -> None:
    """Refuses JSON-LD whose context is elsewhere: reading it must not fetch anything."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            contexts = value.get("@context")
            for context in contexts if isinstance(contexts, list) else [contexts]:
                if isinstance(context, str) or _imports(context):
                    raise DataError(
                        f"has its @context in {_imports(context) or context!r}, and nothing is "
                        "fetched; put the context into the file, or convert it to Turtle",
                        file=file,
                    )
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _imports(context: object) -> object:
    own: JsonObject = context if isinstance(context, dict) else {}
    return own.get("@import")


def _too_long(file: Path) -> DataError:
    return DataError(
        f"has a text of more than {LONGEST_TEXT:,} characters; is this really a vocabulary?",
        file=file,
    )
