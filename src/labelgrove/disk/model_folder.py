"""Model folders: saved whole or not at all, checked when loaded, memory-mapped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labelgrove.core.jsonio import JsonObject
from labelgrove.core.part import Part
from labelgrove.disk.atomic import clean_up, occupied
from labelgrove.disk.bundle import (
    MANIFEST,
    UNCHECKED,
    Verify,
    read_bundle,
    read_manifest,
    write_bundle,
)
from labelgrove.errors import LabelgroveError, ModelFormatError


@dataclass(frozen=True)
class StoredModel:
    """The content of a model folder; arrays are read-only maps of its files."""

    path: Path
    method: str
    params: JsonObject
    parts: WatchedParts
    metadata: JsonObject
    manifest: JsonObject


def save_model(
    path: str | Path,
    *,
    method: str,
    params: Mapping[str, object],
    parts: Mapping[str, Part],
    metadata: Mapping[str, object] | None = None,
    created: str | None = None,
    overwrite: bool = False,
    extra: Callable[[Path], None] | None = None,
) -> None:
    """Writes a model folder under a temporary name, then renames it in one step.

    ``created`` is when it was trained, by default now. ``overwrite`` replaces a labelgrove model
    and nothing else. ``extra`` may write more files (an encoder, a README.md) into the folder.
    """
    target = Path(os.path.realpath(path))
    clean_up(target)
    if overwrite and occupied(target):
        check_replaceable(target)
    fields = {"method": method, "params": params, "metadata": dict(metadata or {})}
    write_bundle(
        path,
        kind="model",
        fields=fields if created is None else fields | {"created": created},
        parts=parts,
        extra=extra,
        replace=overwrite,
    )


def load_model(path: str | Path, *, verify: Verify = "auto") -> StoredModel:
    """Reads a model folder; refuses one that is damaged, incomplete, unsafe or too new."""
    bundle = read_bundle(path, kind="model", verify=verify)
    manifest = _checked(bundle.manifest, path)
    method, params, metadata = (manifest[key] for key in ("method", "params", "metadata"))
    return StoredModel(bundle.path, method, params, WatchedParts(bundle.parts), metadata, manifest)


def model_manifest(path: str | Path) -> JsonObject:
    """The manifest of a model folder, with a method, params and metadata."""
    return _checked(read_manifest(path, kind="model"), path)


def _checked(manifest: JsonObject, path: str | Path) -> JsonObject:
    kinds = {"method": str, "params": dict, "metadata": dict}
    if not all(isinstance(manifest.get(key), kind) for key, kind in kinds.items()):
        raise ModelFormatError(f"{path}/{MANIFEST}: method, params or metadata are missing")
    return manifest


class WatchedParts(dict[str, Part]):
    """The parts of a folder; remembers which one was asked for last, to name it in an error."""

    last = MANIFEST

    def __getitem__(self, name: str) -> Part:
        self.last = name
        return super().__getitem__(name)


@contextmanager
def reading_parts(path: str | Path, parts: WatchedParts | None = None) -> Iterator[None]:
    """Makes any failure to read stored settings and arrays a ModelFormatError that names the part.

    Checksums do not help here: someone who forges a folder writes new ones. Classes check what
    would corrupt memory, and every other error becomes this one.
    """
    try:
        yield
    except (LabelgroveError, MemoryError, ImportError):
        raise
    except _FAILURES as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, a RuntimeError
            raise
        part = "" if parts is None else f"the part {parts.last!r} "
        raise ModelFormatError(
            f"{path}: {part}is damaged or not one of this format ({type(error).__name__}: "
            f"{error}); copy the folder again from where it was made"
        ) from error


_FAILURES: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def model_size(path: str | Path) -> int:
    """Bytes on disk of a model's files, by its manifest."""
    manifest = read_manifest(path, kind="model")
    listed = sum(int(entry["size"]) for entry in manifest["files"].values())
    return listed + (Path(path) / MANIFEST).stat().st_size


def check_replaceable(folder: Path) -> None:
    """Refuses to overwrite a folder with files that do not belong to a model."""
    try:
        manifest = read_manifest(folder, kind="model")
    except ModelFormatError as error:
        raise ModelFormatError(
            f"{folder}: will not be overwritten, because it is not a whole labelgrove model; "
            f"move or delete it yourself ({error})"
        ) from error
    ours = {MANIFEST, UNCHECKED, *manifest["files"]}
    for file in folder.rglob("*"):
        name = file.relative_to(folder).as_posix()
        if name not in ours and (file.is_symlink() or not file.is_dir()):
            raise ModelFormatError(
                f"{folder}: will not be overwritten, because labelgrove did not write {name}; "
                "move that file away first"
            )
