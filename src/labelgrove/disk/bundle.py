"""A folder of parts with a manifest: the format of models, finished stages and checkpoints.

``manifest.json`` has the format, the kind of folder, the library versions and, for each file, its
size and SHA-256 digest. The manifest has a digest of itself. Every part is ``NAME.json`` (its
settings) and ``NAME.safetensors`` (its arrays). Nothing from a folder is used before it is checked,
and nothing in it can name a class or run code.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

from labelgrove.core import jsonio
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.part import Part
from labelgrove.core.versions import VERSION
from labelgrove.disk.atomic import leftovers, write_file, write_folder
from labelgrove.disk.hashing import file_hash
from labelgrove.disk.tensors import read_tensors, write_tensors
from labelgrove.errors import ConfigError, ModelFormatError

FORMAT_VERSION = 1
VERSIONS = {"model": 2}  # of kinds with another one; methods/folders.py reads older settings
MANIFEST = "manifest.json"
UNCHECKED = "README.md"  # people edit a model's card, so it is neither listed nor checked
Verify = Literal["auto", "full", "none"]

_FULL_CHECK_LIMIT = 512 << 20
_MAX_MANIFEST = 64 << 20
_PART_NAME = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)*")


@dataclass(frozen=True)
class Bundle:
    """A folder that was read and checked."""

    path: Path
    manifest: JsonObject
    parts: dict[str, Part]


def write_bundle(
    path: str | Path,
    *,
    kind: str,
    fields: Mapping[str, object],
    parts: Mapping[str, Part],
    extra: Callable[[Path], None] | None = None,
    replace: bool = False,
) -> None:
    """Writes parts and manifest as one folder that appears whole or not at all.

    ``extra`` may write further files into the folder it gets; they are listed and checked too.
    """
    for name in parts:
        if not _PART_NAME.fullmatch(name) or name == "manifest" or len(name) > 200:
            raise ConfigError(
                f"{name!r} cannot be the name of a part: use a-z, 0-9, _ and -, "
                "with / between levels"
            )
    # Refuse what cannot be written before the first byte is written.
    about = jsonio.plain(fields, "manifest")
    configs = {n: jsonio.dump(p.config, where=f"{n}.config") for n, p in parts.items()}

    def write(folder: Path) -> None:
        files: JsonObject = {}
        if extra is not None:
            extra(folder)
            for file in sorted(p for p in folder.rglob("*") if not p.is_dir()):
                files[file.relative_to(folder).as_posix()] = _listed(file)
            files.pop(UNCHECKED, None)
            ours = {MANIFEST, *(f"{n}.{kind}" for n in parts for kind in ("json", "safetensors"))}
            if taken := sorted(ours & set(files)):
                raise ConfigError(f"{taken[0]}: labelgrove writes this file; rename the extra one")
        for name, part in parts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            file = folder / f"{name}.json"
            write_file(file, configs[name])
            files[f"{name}.json"] = _described(file, hashlib.sha256(configs[name]).hexdigest())
            if part.arrays:
                file = folder / f"{name}.safetensors"
                files[f"{name}.safetensors"] = _described(file, write_tensors(file, part.arrays))
        manifest = {
            "format": f"labelgrove-{kind}",
            "format_version": VERSIONS.get(kind, FORMAT_VERSION),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": library_versions(),
            **about,
            "parts": list(parts),
            "files": files,
        }
        manifest["checksum"] = manifest_checksum(manifest)
        write_file(folder / MANIFEST, jsonio.dump(manifest))

    write_folder(path, write, replace=replace)


def read_bundle(path: str | Path, *, kind: str, verify: Verify = "auto") -> Bundle:
    """Checks a folder and maps its arrays into memory.

    Sizes and array headers are always checked. ``full`` compares every byte with the manifest,
    ``none`` no content; ``auto`` is full up to 512 MiB, else none.
    """
    if verify not in ("auto", "full", "none"):
        raise ConfigError(f"verify: must be auto, full or none, got {verify!r}")
    folder = Path(path)
    manifest = read_manifest(folder, kind=kind)
    files = manifest["files"]
    if verify == "auto":
        total = sum(entry["size"] for entry in files.values())
        verify = "full" if total <= _FULL_CHECK_LIMIT else "none"
    check_files(folder, manifest, verify)
    parts = {}
    for name in manifest["parts"]:
        config = jsonio.parse(_content(folder / f"{name}.json"), file=folder / f"{name}.json")
        if not isinstance(config, dict):
            raise ModelFormatError(f"{folder / name}.json: a part's settings must be an object")
        arrays = f"{name}.safetensors"
        parts[name] = Part(config, read_tensors(folder / arrays) if arrays in files else {})
    return Bundle(folder, manifest, parts)


def read_manifest(path: str | Path, *, kind: str) -> JsonObject:
    """The manifest of a folder, checked against its own checksum; reads no other file."""
    folder, file = Path(path), Path(path) / MANIFEST
    if not folder.is_dir():
        if folder.exists():
            raise ModelFormatError(f"{folder}: is a file; a labelgrove {kind} is a folder")
        unfinished = leftovers(folder)
        hint = f"; a write to it was cut off, leaving {unfinished[0].name}" if unfinished else ""
        raise ModelFormatError(f"{folder}: no such folder{hint}")
    if not os.path.lexists(file):
        raise ModelFormatError(f"{folder}: not a labelgrove {kind} (it has no {MANIFEST})")
    if regular_size(folder, MANIFEST) > _MAX_MANIFEST:
        raise ModelFormatError(f"{file}: far too large for a manifest")
    manifest = jsonio.parse(_content(file), file=file)
    if not isinstance(manifest, dict) or manifest.get("format") != f"labelgrove-{kind}":
        raise ModelFormatError(f"{file}: does not describe a labelgrove {kind}")
    version = manifest.get("format_version")
    if type(version) is not int or version < 1:
        raise ModelFormatError(f"{file}: format_version {version!r} is not a version")
    if version > VERSIONS.get(kind, FORMAT_VERSION):
        raise ModelFormatError(
            f"{file}: format version {version} is newer than this labelgrove "
            f"({VERSION}) reads; upgrade labelgrove"
        )
    try:
        checksum = manifest_checksum(manifest)
    except RecursionError as error:
        raise ModelFormatError(f"{file}: nested too deeply") from error
    if manifest.get("checksum") != checksum:
        raise ModelFormatError(f"{file}: was altered or damaged; {_RESTORE}")
    _check_lists(manifest, file)
    return manifest


@cache  # every stage that is stored has them, and reading them takes as long as a small one
def library_versions() -> dict[str, str]:
    """Versions of the installed libraries that may change a model's results."""
    from importlib import metadata  # slow, and needed for saving alone

    versions = {"labelgrove": VERSION, "python": platform.python_version()}
    for name in ("numpy", "scipy", "scikit-learn", "torch", "transformers"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    versions["platform"] = f"{platform.system()} {platform.machine()}"
    return versions


_RESTORE = "copy the folder again from where it was made"


def manifest_checksum(manifest: Mapping[str, object]) -> str:
    """The digest that a manifest has of itself."""
    rest = {key: manifest[key] for key in sorted(manifest) if key != "checksum"}
    return hashlib.sha256(jsonio.dump(rest, indent=None)).hexdigest()


def _check_lists(manifest: JsonObject, file: Path) -> None:
    """Refuses dangerous entries: the checksum shows only that nothing has changed."""
    files, parts = manifest.get("files"), manifest.get("parts")
    if not isinstance(files, dict) or not isinstance(parts, list):
        raise ModelFormatError(f"{file}: has no lists of files and parts")
    for name, entry in files.items():
        if not _is_safe(name):
            raise ModelFormatError(f"{file}: refers to {name!r}, which is outside the folder")
        if (
            not isinstance(entry, dict)
            or type(entry.get("size")) is not int
            or not isinstance(entry.get("sha256"), str)
        ):
            raise ModelFormatError(f"{file}: does not state size and checksums of {name!r}")
    for name in parts:
        if not isinstance(name, str) or not _PART_NAME.fullmatch(name):
            raise ModelFormatError(f"{file}: {name!r} is not the name of a part")
        if f"{name}.json" not in files:
            raise ModelFormatError(f"{file}: does not list the file {name}.json")
    if len(set(parts)) != len(parts):
        raise ModelFormatError(f"{file}: lists a part twice")


def _is_safe(name: str) -> bool:
    bad_characters = any(c in name for c in '\\:*?"<>|') or not name.isprintable()
    return not bad_characters and all(s not in ("", ".", "..") for s in name.split("/"))


def regular_size(folder: Path, name: str) -> int:
    """Size of a file, after checking that it is a plain file inside the folder."""
    file = folder / name
    try:
        inside = Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))
        status = file.stat()
    except OSError as error:
        raise ModelFormatError(f"{file}: missing or unreadable; {_RESTORE}") from error
    if not inside:
        raise ModelFormatError(f"{file}: is a link to outside the folder, which is not followed")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFormatError(f"{file}: is not a plain file")
    return status.st_size


def check_files(folder: Path, manifest: JsonObject, verify: Verify) -> None:
    """Raises unless every file of a manifest is there as it was written."""
    for name, entry in manifest["files"].items():
        file = folder / name
        size = regular_size(folder, name)
        if size != entry["size"]:
            raise ModelFormatError(
                f"{file}: has {size:,} bytes but {entry['size']:,} were written; {_RESTORE}"
            )
        try:
            same = verify != "full" or file_hash(file) == entry["sha256"]
        except OSError as error:
            raise ModelFormatError(f"{file}: cannot be read ({error.strerror})") from error
        if not same:
            raise ModelFormatError(f"{file}: was altered or damaged after writing; {_RESTORE}")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelFormatError(f"{file}: cannot be read ({error.strerror})") from error


def _listed(file: Path) -> JsonObject:
    """Describes a file that other code wrote, and syncs it to disk."""
    name = file.name
    if file.is_symlink() or not file.is_file() or not _is_safe(name):
        raise ConfigError(f"{name!r} cannot be part of a model folder: not a plain file")
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    return _described(file, file_hash(file))


def _described(file: Path, sha256: str) -> JsonObject:
    return {"size": file.stat().st_size, "sha256": sha256}
