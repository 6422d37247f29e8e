"""Which files of a model folder are published: those that its manifest lists, without local paths.

The settings of a model may name an encoder by a folder on the machine that trained it. Published
files keep only the last part of such a path.
"""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from labelgrove.core import jsonio
from labelgrove.core.params import to_toml
from labelgrove.disk.bundle import MANIFEST, manifest_checksum, read_manifest

CONFIG = "config.toml"
PATH_KEYS = ("encoder", "text_encoder")


def published_files(folder: str | Path) -> dict[str, bytes | Path]:
    """The files to publish by their names in the folder: their paths, or new content."""
    folder = Path(folder)
    manifest = read_manifest(folder, kind="model")
    files: dict[str, bytes | Path] = {name: folder / name for name in manifest["files"]}
    for name in manifest["files"]:
        if name.endswith(f"/{MANIFEST}"):  # a member of an ensemble
            inside = name.removesuffix(MANIFEST)
            member = published_files(folder / inside)
            files |= {f"{inside}{part}": content for part, content in member.items()}
    for part in manifest["parts"]:
        settings = jsonio.parse((folder / f"{part}.json").read_bytes(), file=folder / part)
        if settings != without_paths(settings):
            files[f"{part}.json"] = jsonio.dump(without_paths(settings))
    params = without_paths(manifest["params"])
    if params != manifest["params"]:
        manifest["params"] = params
        files[CONFIG] = to_toml({"method": manifest["method"]} | params).encode()
    for name, content in files.items():
        if isinstance(content, bytes):
            digest = hashlib.sha256(content).hexdigest()
            # The file is so small that the sample is the whole.
            sums = {"size": len(content), "sha256": digest, "sample_sha256": digest}
            manifest["files"][name] = sums
    manifest["checksum"] = manifest_checksum(manifest)
    return files | {MANIFEST: jsonio.dump(manifest)}


def without_paths(value: Any) -> Any:
    """Settings in which encoders' paths are cut to their last part."""
    if isinstance(value, list):
        return [without_paths(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        key: plain_name(entry)
        if key in PATH_KEYS and isinstance(entry, str)
        else without_paths(entry)
        for key, entry in value.items()
    }


def plain_name(encoder: str) -> str:
    """The encoder's name; of a folder only its last part."""
    repository = encoder.partition("@")[0]  # a revision may have slashes
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(repository)
        # An id on the Hub has at most one slash and begins with neither dots nor a tilde.
        if path.is_absolute() or encoder.startswith(("~", ".")) or len(path.parts) > 2:
            return kind(encoder).name
    return encoder
