"""Write Debian's package descriptions as a corpus: train, dev and test as JSON lines, labels.tsv.

    python -m benchmarks.corpora.debian debian  # about 56,000 documents, 35,000 labels
    python -m benchmarks.corpora.debian debtags --labels debtags

The task: predict from a package's description which packages it depends on ("depends"), or how
Debian's volunteers tagged it ("debtags"). The text is the synopsis and the long description, not
the package's name, version, section and dependencies.

The machine's own apt downloads the index, because it knows mirrors, proxies and keys, and checks
signatures. Its lists and caches are in a temporary folder, and it runs no hooks, so the state of
the machine's packages does not change.
"""

from __future__ import annotations

import argparse
import gzip
import io
import lzma
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labelgrove.data.formats import Document, write_corpus
from labelgrove.data.splits import HashSplit
from labelgrove.errors import DataError

APT_HELPER = Path("/usr/lib/apt/apt-helper")
LABEL_KINDS = ("depends", "debtags")
_HOOKS = ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--labels", choices=LABEL_KINDS, default="depends")
    parser.add_argument("--arch", help="architecture; default: of this machine")
    parser.add_argument("--lists", type=Path, help="read Packages and Translation-en files here")
    parser.add_argument(
        "--by-source", action="store_true", help="keep a source's packages together"
    )
    parser.add_argument("--dev", type=float, default=0.05)
    parser.add_argument("--test", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="labelgrove-apt-") as private:
        if options.lists is None:
            indexes = fetch_indexes(Path(private), arch=options.arch)
        else:
            indexes = find_indexes(options.lists)
        packages = read_packages(indexes)
    print(*indexes.notes, sep="\n")
    split = HashSplit(dev=options.dev, test=options.test, seed=options.seed)
    parts: dict[str, list[Document]] = {"train": [], "dev": [], "test": []}
    for document in debian_documents(packages, options.labels):
        key = packages[document.id].source if options.by_source else document.id
        parts[split.part(key)].append(document)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, documents in parts.items():
        write_corpus(documents, options.out / f"{name}.jsonl")
        print(f"{name}: {len(documents):,} documents")
    rows = debian_label_rows(packages, options.labels)
    table = "".join("\t".join(" ".join(v.split()) for v in row) + "\n" for row in rows)
    (options.out / "labels.tsv").write_text(table, encoding="utf-8")


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


def debian_documents(packages: Mapping[str, Package], labels: str) -> Iterator[Document]:
    """A document for every package with a text and at least one label; its id is the name."""
    for package in packages.values():
        ids = list(package.labels(labels))
        if ids and package.text:
            yield Document(package.text, ids, package.name)


def debian_label_rows(
    packages: Mapping[str, Package], labels: str
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


@dataclass
class Indexes:
    """Index files, and notes about them for the user."""

    packages: list[Path]
    translations: list[Path]
    notes: list[str] = field(default_factory=list)


def fetch_indexes(folder: Path, *, arch: str | None = None) -> Indexes:
    """Runs ``apt-get update`` into the folder and returns Debian's indexes.

    If Debian is not among apt's sources, all indexes are returned, and a note says so.
    """
    apt_get = shutil.which("apt-get")
    if apt_get is None:
        raise DataError(
            "apt-get is not installed; run this on Debian or Ubuntu, or copy a folder with "
            "Packages and Translation-en files here and give it with --lists"
        )
    command = [apt_get, *_private_options(folder, arch)]
    update = subprocess.run([*command, "update"], capture_output=True, text=True, check=False)
    # One source that cannot be reached makes apt fail, but others may have sent package lists.
    fields = "$(CREATED_BY)\t$(ORIGIN)\t$(CODENAME)\t$(FILENAME)"
    listing = subprocess.run(
        [*command, "indextargets", "--format", fields], capture_output=True, text=True, check=False
    )
    targets = [line.split("\t", 3) for line in listing.stdout.splitlines() if line.count("\t") == 3]
    targets = [target for target in targets if Path(target[3]).is_file()]
    if not any(kind == "Packages" for kind, *_ in targets):
        errors = (update.stderr.strip() or listing.stderr.strip()).splitlines()[-3:]
        reason = " ".join(errors) or "apt has no sources of binary packages"
        raise DataError(f"apt-get update downloaded no package lists: {reason}")
    notes = []
    origins = {origin for _, origin, _, _ in targets}
    if "Debian" in origins:
        targets = [target for target in targets if target[1] == "Debian"]
    else:
        notes.append(f"Debian is not among apt's sources; used {', '.join(sorted(origins))}")
    releases = dict.fromkeys(f"{origin} {codename}" for _, origin, codename, _ in targets)
    notes.insert(0, f"package lists of {', '.join(releases)}")
    return Indexes(
        [Path(path) for kind, _, _, path in targets if kind == "Packages"],
        [Path(path) for kind, _, _, path in targets if kind == "Translations"],
        notes,
    )


def find_indexes(folder: Path) -> Indexes:
    """The index files in a folder, with the names that apt or a mirror gives them."""
    if not folder.is_dir():
        raise DataError("is not a folder with Packages files", file=folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    packages = [path for path in files if _is_index(path, "Packages")]
    if not packages:
        raise DataError("this folder has no Packages files", file=folder)
    return Indexes(packages, [path for path in files if _is_index(path, "Translation-en")])


def read_packages(indexes: Indexes) -> dict[str, Package]:
    """All packages of the indexes by name, with long descriptions if there are any."""
    descriptions: dict[str, str] = {}
    for path in indexes.translations:
        with open_index(path) as lines:
            descriptions.update(long_descriptions(lines))

    packages: dict[str, Package] = {}
    for path in indexes.packages:
        with open_index(path) as lines:
            for package in parse_packages(lines, descriptions):
                packages.setdefault(package.name, package)
    bare = sum(not package.description for package in packages.values())
    if bare:
        note = f"{bare:,} of {len(packages):,} packages have only a synopsis"
        indexes.notes.append(note + ("" if descriptions else "; there is no Translation-en file"))
    return packages


@contextmanager
def open_index(path: Path) -> Iterator[io.TextIOBase]:
    """The lines of an index file; apt decompresses what is neither gzip nor xz."""
    suffix = path.suffix.lower()
    opening: Any = {".gz": gzip.open, ".xz": lzma.open}.get(suffix, open)
    try:
        if suffix in (".lz4", ".zst", ".bz2", ".lzma"):
            yield io.StringIO(_cat_file(path))
        else:
            with opening(path, "rt", encoding="utf-8", errors="replace") as stream:
                yield stream
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"cannot be read: {error}", file=path) from error


def _cat_file(path: Path) -> str:
    if not APT_HELPER.exists():
        raise DataError(f"{path.suffix} files need apt, which is not installed", file=path)
    done = subprocess.run([APT_HELPER, "cat-file", path], capture_output=True, check=False)
    if done.returncode:
        raise DataError(done.stderr.decode(errors="replace").strip(), file=path)
    return done.stdout.decode("utf-8", "replace")


def _private_options(folder: Path, arch: str | None) -> list[str]:
    lists, cache = folder / "lists", folder / "cache"
    for partial in (lists / "partial", cache / "archives" / "partial"):
        partial.mkdir(parents=True, exist_ok=True)
    # When root runs apt, it downloads as another user, who needs access to this folder.
    folder.chmod(0o755)
    config = folder / "apt.conf"
    config.write_text("".join(f"#clear APT::Update::{hook};\n" for hook in _HOOKS))
    settings = {
        "Dir::State::lists": f"{lists}/",
        "Dir::Cache": f"{cache}/",
        "Acquire::Languages": "en",
        "Acquire::GzipIndexes": "false",
    }
    if arch is not None:
        settings |= {"APT::Architecture": arch, "APT::Architectures": arch}
    options = [f"--config-file={config}"]
    return options + [f"--option={name}={value}" for name, value in settings.items()]


def _is_index(path: Path, kind: str) -> bool:
    name = path.name.split("_")[-1]
    return name == kind or name.startswith(f"{kind}.")


if __name__ == "__main__":
    main()
