"""Download package indexes with the machine's own apt into a separate folder.

apt knows the machine's mirrors, proxies and keys, and checks signatures. Its lists and caches are
in our folder, and it runs no hooks, so the state of the machine's packages does not change.
"""

from __future__ import annotations

import gzip
import io
import lzma
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labelgrove.data.debian import Package, long_descriptions, parse_packages
from labelgrove.errors import DataError

APT_HELPER = Path("/usr/lib/apt/apt-helper")
_HOOKS = ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")


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
