"""Read a project of Annif: its section of the configuration, its vocabulary and its corpora.

Annif saves the vocabulary, but not the corpora that ``annif train`` was given: their paths must be
given again.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from labelgrove.core.params import Settings, read_toml
from labelgrove.data.formats.annif import without_brackets
from labelgrove.data.formats.building import counted
from labelgrove.data.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import bare_name, existing, parse_lines, read_all
from labelgrove.data.formats.labels import NamedRow, read_label_table
from labelgrove.data.formats.read import iter_documents
from labelgrove.errors import ConfigError, DataError

# Backends of Annif without a counterpart, and what to do instead.
LEXICAL = "finds terms of the vocabulary in texts; the method matcher comes nearest"
COMBINING = "has no documents of its own; import the projects behind it"
ADVICE = dict.fromkeys(("mllm", "stwfsa", "yake"), LEXICAL)
ADVICE |= dict.fromkeys(("ensemble", "nn_ensemble", "pav", "http"), COMBINING)
ADVICE["labelgrove"] = "keeps its settings in its model folder, data/projects/ID/labelgrove-model"
METHODS = {"tfidf": "linear", "svc": "ova", "omikuji": "parabel", "labelgrove": "auto"}
# Other keys of a section, such as min_df, are left out with a note.
READ = {"name", "language", "vocab", "backend", "cluster_balanced", "limit", "access"}
RDF = (".ttl", ".nt", ".rdf", ".xml", ".owl", ".jsonld", ".n3")
SHARED = "DEFAULT"  # the section whose keys all others have
LABEL = "label_"  # and a language: the columns of names in a CSV vocabulary


class VocabSpec(NamedTuple):
    """A value of ``vocab=``, such as ``yso(en,exclude=http://example.org/1)``."""

    name: str
    values: list[str]
    options: dict[str, str]


@dataclass(frozen=True)
class AnnifProject:
    """A section of ``projects.cfg``, ``projects.toml`` or the folder ``projects.d``."""

    id: str
    section: Mapping[str, object]
    file: Path

    @property
    def vocab(self) -> VocabSpec:
        spec = self.section.get("vocab")
        if not spec:
            raise ConfigError(f"{self.file}: the project {self.id} has no vocab=")
        match = re.fullmatch(r"([\w-]+)(?:\((.*)\))?", str(spec).strip())
        if match is None:
            raise ConfigError(f"vocab={spec}: must look like name or name(value,option=value)")
        words = [word.strip() for word in (match[2] or "").split(",") if word.strip()]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        return VocabSpec(match[1], [word for word in words if "=" not in word], options)

    @property
    def language(self) -> str:
        values = self.vocab.values
        return values[0] if values else str(self.section.get("language", "en"))

    def data(self, folder: Path | None) -> Path:
        """Annif's data folder: by default the one beside the configuration."""
        return folder or self.file.parent / "data"


def read_project(source: str) -> AnnifProject:
    """The project of ``PROJECTS.CFG:ID``; without an id, the only one of the file."""
    path, chosen = Path(source), ""
    if not path.exists() and ":" in source:
        name, _, chosen = source.rpartition(":")
        path = Path(name)
    sections = _sections(existing(path))
    if not sections:
        raise ConfigError(f"{path}: has no projects")
    first = next(iter(sections))
    if not chosen and len(sections) > 1:
        names = ", ".join(sections)
        raise ConfigError(f"{path}: has several projects; choose one: {path}:{first} (of {names})")
    chosen = chosen or first
    if chosen not in sections:
        raise ConfigError(f"{path}: has no project {chosen!r}, only {', '.join(sections)}")
    if not re.fullmatch(r"[\w-]+", chosen):  # it is the name of a folder, too
        raise ConfigError(f"{path}: {chosen!r} is no id of a project: use letters, digits, _ and -")
    return AnnifProject(chosen, sections[chosen], path)


def _sections(path: Path) -> dict[str, Mapping[str, object]]:
    if path.is_dir():
        files = sorted([*path.glob("*.cfg"), *path.glob("*.toml")])
        return {key: value for file in files for key, value in _sections(file).items()}
    if path.suffix == ".toml":
        return {key: value for key, value in read_toml(path).items() if isinstance(value, dict)}
    return dict(read_sections(path))


# Python's configparser takes hours for some short files.
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


@dataclass
class Vocabulary:
    """The subjects of a project, and how documents name them."""

    rows: list[NamedRow]
    unknown: int = 0  # occurrences of subjects that the project does not have
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._uris = {row.id for row in self.rows}
        self._by_name = {row.name: row.id for row in reversed(self.rows)}

    def known(self, document: Document) -> Document:
        """The document with the URIs of its subjects; others are counted and left out."""
        labels = map(without_brackets, document.labels)
        uris = [label if label in self._uris else self._by_name.get(label) for label in labels]
        self.unknown += uris.count(None)
        return Document(
            document.text, [uri for uri in dict.fromkeys(uris) if uri is not None], document.id
        )


def project_vocabulary(
    project: AnnifProject, *, data: Path | None = None, file: Path | None = None
) -> Vocabulary:
    """The vocabulary of a file, or the one that was loaded into Annif's data folder."""
    vocab = project.vocab
    if file is None:
        folder = project.data(data) / "vocabs" / vocab.name
        file = _inside(folder / "subjects.csv", folder)
        if not file.is_file():
            raise DataError(
                f"does not exist; run annif load-vocab {vocab.name}, name Annif's data folder "
                "(--data), or give the vocabulary as a CSV or TSV file (--labels)",
                file=file,
            )
    rows, notes = read_vocabulary(file, project.language), []
    excluded: set[str] = set()
    for rule, value in vocab.options.items():
        uris = set(value.split("|"))
        if rule == "exclude":
            excluded |= {row.id for row in rows} if "*" in uris else uris
        elif rule == "include":
            excluded -= uris
        else:
            notes.append(f"vocab: the rule {rule} is not applied; its subjects stay as they are")
    rows = [row for row in rows if row.id not in excluded]
    if not rows:
        raise DataError(f"vocab={project.section['vocab']} excludes every subject", file=file)
    return Vocabulary(rows, notes=notes)


def read_vocabulary(path: str | Path, language: str) -> list[NamedRow]:
    """The concepts in use, named in a language, or else in another one."""
    file = existing(path)
    suffix = file.suffix.lower()
    if suffix in RDF:
        raise DataError(
            "RDF is not read; annif load-vocab makes a table of it, data/vocabs/ID/subjects.csv",
            file=file,
        )
    return _read_csv(file, language) if suffix == ".csv" else read_label_table(file)


def _read_csv(file: Path, language: str) -> list[NamedRow]:
    """Annif's own table, ``data/vocabs/ID/subjects.csv``, or one like it."""
    reader = csv.DictReader(line + "\n" for _, line in read_all(file))
    rows: dict[str, NamedRow] = {}
    try:
        columns = reader.fieldnames or []
        languages = [name.removeprefix(LABEL) for name in columns if name.startswith(LABEL)]
        if "uri" not in columns or not languages:
            raise DataError(
                "is no vocabulary of Annif: it needs the columns uri and label_en (or another "
                f"language), and has {', '.join(columns) or 'none'}",
                file=file,
            )
        if language not in languages:
            raise DataError(
                f"has no names in the language {language!r}, only in {', '.join(languages)}; write "
                f"vocab=ID({languages[0]}) in the project's section",
                file=file,
            )
        for cells in reader:
            names = {code: cells[LABEL + code] for code in languages if cells[LABEL + code]}
            uri = without_brackets((cells["uri"] or "").strip())
            if uri and names:  # without names, Annif means a concept that was removed
                name = names.get(language) or names[min(names)]
                rows.setdefault(uri, NamedRow(uri, " ".join(name.split())))
    except csv.Error as error:
        raise DataError(
            f"is not valid CSV: {error}", file=file, line=reader.line_num + 1
        ) from error
    if not rows:
        raise DataError("has no concepts in use", file=file)
    return list(rows.values())


def _inside(file: Path, folder: Path) -> Path:
    """The file, unless dots or links lead out of the folder: it may come from a stranger."""
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder)):
        raise ConfigError(f"{file}: is outside the folder {folder}; nothing there is read")
    return file


def project_documents(
    paths: Iterable[Path], vocabulary: Vocabulary, options: ReadOptions, report: ReadReport
) -> Iterator[Document]:
    """The documents of TSV, CSV and JSONL files and of folders, as ``annif train`` reads them."""
    for path in paths:
        for document in _documents(existing(path), options, report):
            yield vocabulary.known(document)


def _documents(path: Path, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    suffix = "" if path.is_dir() else Path(bare_name(path)).suffix.lower()
    how = ReadOptions(format="annif", skip_bad=options.skip_bad, encoding=options.encoding)
    if suffix == ".csv":
        how.format, how.labels_field, how.id_field = "csv", "subject_uris", "document_id"
        how.label_separator = " "
    elif suffix == ".jsonl":
        lines = parse_lines(path, _json_document, how, report)
        return counted(lines, source=path, report=report)
    return iter_documents(path, options=how, report=report)


def _json_document(line: str) -> Document:
    """A line of Annif's JSON Lines, or of the corpus that our backend saved."""
    try:
        record = json.loads(line)
        text, subjects = record.get("text", ""), record.get("subjects", record.get("labels", []))
        labels = [
            subject if isinstance(subject, str) else subject.get("uri") or subject["label"]
            for subject in subjects
        ]
        identity = record.get("document_id", record.get("id"))
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
        raise BadLine(
            'is no document of Annif, such as {"text": ..., "subjects": [{"uri": ...}]}'
        ) from error
    if not isinstance(text, str) or not all(isinstance(label, str) for label in labels):
        raise BadLine("text, URIs and labels of subjects must be strings")
    return Document(text, labels, None if identity is None else str(identity))


def starting_settings(project: AnnifProject) -> tuple[Settings, list[str]]:
    """Settings for ``labelgrove train`` that come near the project's, and what has no counterpart.

    >>> section = {"backend": "omikuji", "cluster_balanced": "False", "ngram": "2"}
    >>> starting_settings(AnnifProject("a", section, Path("projects.cfg")))
    ({'method': 'bonsai'}, ['left out: ngram=2'])
    """
    section, backend = project.section, str(project.section.get("backend", ""))
    notes: list[str] = []
    settings: Settings = {"method": METHODS.get(backend, "linear")}
    balanced = str(section.get("cluster_balanced", "true")).lower()
    if backend == "omikuji" and balanced not in ("1", "yes", "true", "on"):
        settings["method"] = "bonsai"
    elif backend in ADVICE:
        notes.append(f"{backend} {ADVICE[backend]}")
    elif backend not in METHODS:
        notes.append(f"the backend {backend or '(none)'} has no counterpart; linear is a start")
    read, spec = READ, str(section.get("analyzer", ""))
    if spec.startswith("snowball"):
        read = READ | {"analyzer"}
        settings["tfidf"] = {"analyzer": "stem"}
        notes.append(
            f"analyzer={spec}: words are counted beside their stems, in the language of each text; "
            "that needs the extra stem"
        )
    others = [f"{key}={value}" for key, value in section.items() if key not in read]
    return settings, notes + ([f"left out: {', '.join(others)}"] if others else [])
