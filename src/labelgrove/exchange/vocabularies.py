"""Vocabularies as Annif loads them: SKOS in any RDF format, CSV with a column per language, TSV."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from labelgrove.data.formats.annif import without_brackets
from labelgrove.data.formats.files import existing, read_all
from labelgrove.data.formats.labels import LabelRow, read_label_table
from labelgrove.errors import DataError, MissingExtraError

RDF_FORMATS = {
    ".ttl": "turtle",
    ".rdf": "xml",
    ".xml": "xml",
    ".owl": "xml",
    ".nt": "nt",
    ".n3": "n3",
    ".jsonld": "json-ld",
}
LABEL = "label_"  # and a language: the columns of names in a CSV vocabulary


def read_vocabulary(path: str | Path, language: str) -> list[LabelRow]:
    """The concepts that are in use, with their names in a language.

    A concept without a name in this language gets one of another language or, at last, its URI.
    If no concept has a name in this language, that is an error.
    """
    file = existing(path)
    suffix = file.suffix.lower()
    if suffix in RDF_FORMATS:
        return _read_skos(file, language)
    if suffix == ".csv":
        return _read_csv(file, language)
    return read_label_table(file)


def _read_csv(file: Path, language: str) -> list[LabelRow]:
    """Annif's own table, ``data/vocabs/ID/subjects.csv``, or one like it."""
    reader = csv.DictReader(line + "\n" for _, line in read_all(file))
    rows: dict[str, LabelRow] = {}
    try:
        columns = reader.fieldnames or []
        languages = [name.removeprefix(LABEL) for name in columns if name.startswith(LABEL)]
        if "uri" not in columns or not languages:
            raise DataError(
                "is no vocabulary of Annif: it needs the columns uri and label_en (or another "
                f"language), and has {', '.join(columns) or 'none'}",
                file=file,
            )
        _check_language(language, languages, file)
        for cells in reader:
            names = {code: cells[LABEL + code] for code in languages if cells[LABEL + code]}
            uri = without_brackets((cells["uri"] or "").strip())
            if uri and names:  # without names, Annif means a concept that was removed
                rows.setdefault(uri, LabelRow(uri, _line(names, language)))
    except csv.Error as error:
        raise DataError(
            f"is not valid CSV: {error}", file=file, line=reader.line_num + 1
        ) from error
    return _checked(rows, file)


def _read_skos(file: Path, language: str) -> list[LabelRow]:
    try:
        import rdflib
        from rdflib.namespace import OWL, RDF, RDFS, SKOS
    except ImportError as error:
        raise MissingExtraError("skos", f"reading {file.name}") from error
    graph = rdflib.Graph()
    try:
        graph.parse(str(file), format=RDF_FORMATS[file.suffix.lower()])
    except Exception as error:  # each of rdflib's parsers has errors of its own
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise DataError(f"cannot be read as RDF: {reason}", file=file) from error
    concepts = sorted(
        concept
        for concept in graph.subjects(RDF.type, SKOS.Concept)
        if isinstance(concept, rdflib.URIRef)
        and (concept, OWL.deprecated, rdflib.Literal(True)) not in graph
    )
    rows: dict[str, LabelRow] = {}
    seen: set[str] = set()
    for concept in concepts:
        names: dict[str, str] = {}
        for kind in (SKOS.prefLabel, RDFS.label):
            for label in sorted(graph.objects(concept, kind), key=str):
                code: Any = getattr(label, "language", None)
                names.setdefault(code or "", str(label))
        seen |= names.keys()
        uri = str(concept)
        rows[uri] = LabelRow(uri, _line(names, language) if names else uri)
    if "" not in seen:  # names without a language are those of every language
        _check_language(language, sorted(seen), file)
    return _checked(rows, file)


def _line(names: dict[str, str], language: str) -> str:
    """The name in a language, or without a language, or in any; a label table has lines."""
    name = names.get(language) or names.get("") or names[min(names)]
    return " ".join(name.split())


def _check_language(language: str, languages: list[str], file: Path) -> None:
    if languages and language not in languages:
        raise DataError(
            f"has no names in the language {language!r}, only in {', '.join(languages)}; write "
            f"vocab=ID({languages[0]}) in the project's section",
            file=file,
        )


def _checked(rows: dict[str, LabelRow], file: Path) -> list[LabelRow]:
    if not rows:
        raise DataError(
            "has no concepts in use; give the file that annif load-vocab was given (--labels)",
            file=file,
        )
    return list(rows.values())
