"""``projects.cfg`` and SKOS files of strangers: nothing is fetched, and the work is in proportion.

Python's configparser takes hours for some short files, and rdflib for some texts in XML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from labelgrove.data.formats.files import read_all
from labelgrove.errors import ConfigError, DataError, needing

if TYPE_CHECKING:
    from rdflib import Graph

SHARED = "DEFAULT"  # the section whose keys all others have
LONGEST_TEXT = 100_000  # characters of a name or note; rdflib joins its pieces one by one
LONGEST_ENTITY = 200  # characters; entities in RDF are beginnings of URIs


def read_sections(path: Path) -> dict[str, dict[str, str]]:
    """The sections of a ``projects.cfg``; references such as ``%(key)s`` are refused."""
    sections: dict[str, dict[str, list[str]]] = {}
    values: dict[str, list[str]] | None = None
    lines: list[str] | None = None
    for number, line in read_all(path):
        text, where = line.strip(), f"{path}, line {number}"
        if not text or text[0] in "#;":
            continue
        if "%(" in text:
            raise ConfigError(f"{where}: references such as %(key)s are not read; write them out")
        if lines is not None and line[0].isspace():
            lines.append(text)
        elif text[0] == "[" and text[-1] == "]":
            values, lines = sections.setdefault(text[1:-1], {}), None
        else:
            key, *rest = re.split("[=:]", text, maxsplit=1)
            if values is None or not rest or not key:
                raise ConfigError(
                    f"{where}: is no projects.cfg of Annif; expected [project] or key=value, got "
                    f"{text[:60]!r}"
                )
            if key.rstrip() in values:
                raise ConfigError(f"{where}: {key.rstrip()} occurs twice in its section")
            lines = values[key.rstrip()] = [rest[0].strip()]
    shared = sections.pop(SHARED, {})
    return {
        name: {key: "\n".join(value).replace("%%", "%") for key, value in (shared | own).items()}
        for name, own in sections.items()
    }


def read_graph(file: Path) -> Graph:
    """The triples of an RDF file; needs the extra skos."""
    with needing("skos", f"reading {file.name}"):
        import rdflib
    format = "turtle" if file.suffix.lower() == ".ttl" else "xml"
    try:
        content = file.read_bytes()
        if format == "xml":
            _check_xml(content, file)
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
            raise DataError(
                f"has a text of more than {LONGEST_TEXT:,} characters; is this a vocabulary?",
                file=file,
            )

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
