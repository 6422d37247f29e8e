"""Descriptions of Debian packages, and their labels.

The task: predict from a package's description which packages it depends on ("depends"), or how
Debian's volunteers tagged it ("debtags"). The text is the synopsis and the long description, not
the package's name, version, section and dependencies. Everything here is a pure function of the
text of index files; :mod:`labelgrove.data.apt` downloads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from labelgrove.data.formats.documents import Document
from labelgrove.errors import ConfigError

LabelKind = Literal["depends", "debtags"]
LABEL_KINDS: tuple[LabelKind, ...] = ("depends", "debtags")


@dataclass(frozen=True, slots=True)
class Package:
    """What the task needs of one binary package."""

    name: str
    source: str  # the source package, which other packages may share
    synopsis: str
    description: str  # empty if only the synopsis is known
    depends: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def text(self) -> str:
        """The synopsis and the long description."""
        return f"{self.synopsis}\n{self.description}" if self.description else self.synopsis

    def labels(self, kind: str) -> tuple[str, ...]:
        """The labels of the chosen kind."""
        if kind not in LABEL_KINDS:
            raise ConfigError(f"labels: must be one of {', '.join(LABEL_KINDS)}, got {kind!r}")
        return self.depends if kind == "depends" else self.tags


def parse_paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """The paragraphs of an index file as fields, whose values can have several lines."""
    fields: dict[str, str] = {}
    name = ""
    for raw in lines:
        line = raw.rstrip("\r\n")
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0] in " \t":
            if name:
                fields[name] += f"\n{line}"
        elif line[0] != "#":
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def dependency_names(field: str) -> list[str]:
    """The package names in a Depends field, each once, without versions and architectures.

    Of alternatives (``mta-one | mta``) only the first counts: it is installed by default.
    """
    groups = (re.match(r"\s*([A-Za-z0-9][A-Za-z0-9+.\-]*)", group) for group in field.split(","))
    return list(dict.fromkeys(match[1] for match in groups if match))


def tag_names(field: str) -> list[str]:
    """The tags in a Tag field, each once; ``facet::{a,b}`` means two tags."""
    names: dict[str, None] = {}
    for tag in re.findall(r"[^\s,{}]+::\{[^{}]*\}|[^\s,{}]+", field):
        facet, brace, several = tag.partition("::{")
        if brace:
            parts = (part.strip() for part in several.rstrip("}").split(","))
            names.update((f"{facet}::{part}", None) for part in parts if part)
        else:
            names[tag] = None
    return list(names)


def plain_description(field: str) -> tuple[str, str]:
    """The synopsis, and the long description with one line per paragraph or list item."""
    synopsis, *lines = field.split("\n")
    paragraphs: list[str] = []
    fresh = True
    for line in lines:
        words = " ".join(line.split())
        if words in (".", ""):
            fresh = True
        elif fresh or line.startswith(("  ", "\t")) or words[0] in "*-":
            paragraphs.append(words)
            fresh = False
        else:
            paragraphs[-1] += f" {words}"
    return synopsis.strip(), "\n".join(paragraphs)


def long_descriptions(lines: Iterable[str]) -> dict[str, str]:
    """The descriptions in a Translation-en file, by Description-md5."""
    descriptions: dict[str, str] = {}
    for fields in parse_paragraphs(lines):
        description = fields.get("Description-en") or fields.get("Description")
        if description and "Description-md5" in fields:
            descriptions[fields["Description-md5"]] = description
    return descriptions


def parse_packages(
    lines: Iterable[str], descriptions: Mapping[str, str] | None = None
) -> Iterator[Package]:
    """The packages of a Packages file, with their long descriptions if these are given."""
    for fields in parse_paragraphs(lines):
        if "Package" not in fields:
            continue
        description = fields.get("Description", "")
        if "\n" not in description:
            md5 = fields.get("Description-md5", "")
            description = (descriptions or {}).get(md5, description)
        synopsis, text = plain_description(description)
        depends = f"{fields.get('Pre-Depends', '')}, {fields.get('Depends', '')}"
        name = fields["Package"]
        yield Package(
            name=name,
            source=fields.get("Source", name).partition(" ")[0],
            synopsis=synopsis,
            description=text,
            depends=tuple(other for other in dependency_names(depends) if other != name),
            tags=tuple(tag_names(fields.get("Tag", ""))),
        )


def debian_documents(
    packages: Mapping[str, Package], *, labels: LabelKind = "depends"
) -> Iterator[Document]:
    """A document for every package with a text and at least one label; its id is the name."""
    for package in packages.values():
        ids = list(package.labels(labels))
        if ids and package.text:
            yield Document(package.text, ids, package.name)


def debian_label_rows(
    packages: Mapping[str, Package], *, labels: LabelKind = "depends"
) -> Iterator[tuple[str, str, str]]:
    """The id, name and text of every label that occurs; a package's text is its synopsis."""
    ids = sorted({label for package in packages.values() for label in package.labels(labels)})
    for label in ids:
        if labels == "debtags":
            facet, _, value = label.partition("::")
            yield label, label, f"{facet}: {value}".replace("-", " ")
        else:
            package = packages.get(label)
            yield label, label, package.synopsis if package else ""
