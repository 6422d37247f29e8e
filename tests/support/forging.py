"""Model folders changed by somebody who knows the format: every checksum is right again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labelgrove.disk import bundle
from labelgrove.disk.hashing import file_hash
from labelgrove.disk.tensors import read_tensors, write_tensors


def forge_settings(folder: Path, part: str, changes: Mapping[str, Any]) -> None:
    """Lays changes over the settings of a part."""
    file = folder / f"{part}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | dict(changes)))
    sign(folder)


def forge_arrays(folder: Path, part: str, changes: Mapping[str, Any]) -> None:
    """Replaces arrays of a part; None removes one."""
    file = folder / f"{part}.safetensors"
    arrays = {name: array.copy() for name, array in read_tensors(file).items()} | dict(changes)
    file.unlink()
    write_tensors(file, {name: array for name, array in arrays.items() if array is not None})
    sign(folder)


def forge_manifest(folder: Path, changes: Mapping[str, Any], *, measure: bool = True) -> None:
    """Lays changes over the manifest."""
    file = folder / bundle.MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text()) | dict(changes)))
    sign(folder, measure=measure)


def sign(folder: Path, *, measure: bool = True) -> None:
    """Writes the sizes and checksums that the files have now; or only the manifest's own."""
    file = folder / bundle.MANIFEST
    manifest = json.loads(file.read_text())
    for name in manifest["files"] if measure else ():
        manifest["files"][name] = bundle._described(folder / name, file_hash(folder / name))
    manifest["checksum"] = bundle.manifest_checksum(manifest)
    file.write_text(json.dumps(manifest))
