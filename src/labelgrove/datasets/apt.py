"""Package indexes through the machine's own apt, into a folder of their own.

apt knows the machine's mirrors, proxies and keys, and checks signatures. It is told to keep its
lists and caches in our folder and to run no hooks, so the machine's package state stays as it is.
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

from labelgrove.datasets.debian import (
    Package,
    first_of_each_name,
    long_descriptions,
    parse_packages,
)
from labelgrove.errors import DataError

APT_HELPER = Path("/usr/lib/apt/apt-helper")
_HOOKS = ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")


@dataclass
class Indexes:
    """Index files, and in ``notes`` what a user should know about them."""

    packages: list[Path]
    translations: list[Path]
    notes: list[str] = field(default_factory=list)


def fetch_indexes(folder: Path, *, arch: str | None = None) -> Indexes:
    """Runs ``apt-get update`` into the folder; the indexes of Debian if apt has any of them.

    Machines with other sources as well (a vendor's, a derivative's) give only Debian's; a machine
    without Debian among its sources gives all it has, and a note says so.
    """
    apt_get = shutil.which("apt-get")
    if apt_get is None:
        raise DataError(
            "apt-get is not on this machine; run this on Debian or Ubuntu, or copy a folder with "
            "Packages and Translation-en files here and name it with --lists"
        )
    command = [apt_get, *_private_options(folder, arch)]
    update = subprocess.run([*command, "update"], capture_output=True, text=True, check=False)
    # One unreachable vendor makes apt fail; what counts is whether package lists came.
    wanted = "$(CREATED_BY)\t$(ORIGIN)\t$(CODENAME)\t$(FILENAME)"
    listing = subprocess.run(
        [*command, "indextargets", "--format", wanted], capture_output=True, text=True, check=False
    )
    targets = [line.split("\t", 3) for line in listing.stdout.splitlines() if line.count("\t") == 3]
    targets = [target for target in targets if Path(target[3]).is_file()]
    if not any(kind == "Packages" for kind, *_ in targets):
        complaint = (update.stderr.strip() or listing.stderr.strip()).splitlines()[-3:]
        raise DataError(
            "apt-get update brought no package lists: "
            + (" ".join(complaint) or "apt has no binary package sources")
        )
    notes = []
    origins = {origin for _, origin, _, _ in targets}
    if "Debian" in origins:
        targets = [target for target in targets if target[1] == "Debian"]
    else:
        notes.append(f"no Debian among apt's sources; took {', '.join(sorted(origins))}")
    releases = dict.fromkeys(f"{origin} {codename}" for _, origin, codename, _ in targets)
    notes.insert(0, f"package lists of {', '.join(releases)}")
    return Indexes(
        [Path(path) for kind, _, _, path in targets if kind == "Packages"],
        [Path(path) for kind, _, _, path in targets if kind == "Translations"],
        notes,
    )


def find_indexes(folder: Path) -> Indexes:
    """Index files that lie in a folder already, as apt names them or as a mirror does."""
    if not folder.is_dir():
        raise DataError("is not a folder with Packages files", file=folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    packages = [path for path in files if _names(path, "Packages")]
    if not packages:
        raise DataError("holds no Packages files", file=folder)
    return Indexes(packages, [path for path in files if _names(path, "Translation-en")])


def read_packages(indexes: Indexes) -> dict[str, Package]:
    """All packages of the indexes by name, with long descriptions where there are any."""
    descriptions: dict[str, str] = {}
    for path in indexes.translations:
        with open_index(path) as lines:
            descriptions.update(long_descriptions(lines))

    def packages() -> Iterator[Package]:
        for path in indexes.packages:
            with open_index(path) as lines:
                yield from parse_packages(lines, descriptions)

    found = first_of_each_name(packages())
    bare = sum(1 for package in found.values() if not package.description)
    if bare:
        indexes.notes.append(
            f"{bare:,} of {len(found):,} packages have a synopsis only"
            + ("" if descriptions else "; no Translation-en file could be had")
        )
    return found


@contextmanager
def open_index(path: Path) -> Iterator[io.TextIOBase]:
    """Lines of an index file: plain, gzip or xz by Python, whatever else apt writes by apt."""
    suffix = path.suffix.lower()
    try:
        if suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8", errors="replace") as stream:
                yield stream
        elif suffix == ".xz":
            with lzma.open(path, "rt", encoding="utf-8", errors="replace") as stream:
                yield stream
        elif suffix in (".lz4", ".zst", ".bz2", ".lzma"):
            yield io.StringIO(_cat_file(path))
        else:
            with path.open(encoding="utf-8", errors="replace") as stream:
                yield stream
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DataError(f"cannot be read: {error}", file=path) from error


def _cat_file(path: Path) -> str:
    if not APT_HELPER.exists():
        raise DataError(f"unpacking {path.suffix} files needs apt, which is not here", file=path)
    done = subprocess.run([APT_HELPER, "cat-file", path], capture_output=True, check=False)
    if done.returncode:
        raise DataError(done.stderr.decode(errors="replace").strip(), file=path)
    return done.stdout.decode("utf-8", "replace")


def _private_options(folder: Path, arch: str | None) -> list[str]:
    lists, cache = folder / "lists", folder / "cache"
    for needed in (lists / "partial", cache / "archives" / "partial"):
        needed.mkdir(parents=True, exist_ok=True)
    # Run as root, apt downloads as a user of its own, who must be able to get here.
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


def _names(path: Path, what: str) -> bool:
    name = path.name.split("_")[-1]
    return name == what or name.startswith(f"{what}.")
