"""Pickled weights of an encoder (pytorch_model.bin) as safetensors, converted once.

Loading a pickle can run any code. ``torch.load(weights_only=True)`` reads tensors and plain values
and refuses everything else, but old files deserve no more trust than that: we convert only where
the user says so, and say what was written.
"""

from __future__ import annotations

import json
import pickle
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from labelgrove.core.memory import format_size
from labelgrove.core.storing import storing
from labelgrove.disk.atomic import write_folder
from labelgrove.errors import ConfigError, MissingExtraError, warn

if TYPE_CHECKING:
    from torch import Tensor

SETTING = "encoder.convert_weights"
WEIGHTS = "model.safetensors"
PICKLED = ["pytorch_model*.bin"]  # one file, or numbered pieces with an index beside them
_INDEX = "pytorch_model.bin.index.json"
_SAFE_SINCE = (2, 6)  # of torch: before, weights_only could be tricked (CVE-2025-32434)


def has_pickled_weights(folder: Path) -> bool:
    """Whether a folder has a config and pickled weights."""
    return (folder / "config.json").is_file() and any(folder.glob(PICKLED[0]))


def convert_beside(folder: Path, name: str) -> None:
    """Writes safetensors into a local folder that has only pickled weights."""
    target = folder / WEIGHTS
    temporary = target.with_name(f".{WEIGHTS}.labelgrove-tmp-{uuid.uuid4().hex[:12]}")
    _announce(folder, target, name)
    try:
        with storing(target):
            _write_weights(folder, temporary, name)
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def convert_into(target: Path, folder: Path, name: str) -> None:
    """Makes the folder ``target`` from a folder of the Hub's cache, with safetensors instead."""

    def write(new: Path) -> None:
        for file in folder.rglob("*"):
            if file.is_file() and not file.match(PICKLED[0]) and file.name != _INDEX:
                place = new / file.relative_to(folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
        _write_weights(folder, new / WEIGHTS, name)

    _announce(folder, target / WEIGHTS, name)
    write_folder(target, write)


def _announce(folder: Path, target: Path, name: str) -> None:
    files = sorted(folder.glob(PICKLED[0]))
    size = format_size(sum(file.stat().st_size for file in files))
    several = "" if len(files) == 1 else f" and {len(files) - 1} more"
    warn(
        f"encoder {name!r}: {SETTING} converts {files[0].name}{several} ({size}) to {target}; "
        "the tensors are read as data, without running code, and this happens once"
    )


def _write_weights(folder: Path, target: Path, name: str) -> None:
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingExtraError("torch", "converting weights") from error
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob(PICKLED[0])):
        tensors |= _tensors(file, name)
    index = folder / _INDEX
    if index.is_file():
        try:
            expected = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"encoder {name!r}: {_INDEX} cannot be read ({error})") from error
        if missing := sorted(expected - set(tensors)):
            raise ConfigError(
                f"encoder {name!r}: its pieces lack {missing[0]} and {len(missing) - 1} other "
                "weights; download all of them again"
            )
    save_file(tensors, target, metadata={"format": "pt"})


def _tensors(file: Path, name: str) -> dict[str, Tensor]:
    import torch

    refusal = f"encoder {name!r}: {file.name} is not converted:"
    if tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_SINCE:
        raise ConfigError(
            f"{refusal} torch {torch.__version__} can be made to run code by such a file; install "
            "torch 2.6 or newer"
        )
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConfigError(
            f"{refusal} it holds more than tensors, and reading it could run code; choose another "
            "encoder or a revision with safetensors (NAME@REVISION)"
        ) from error
    except Exception as error:  # of many types: not a pickle, cut short, another format
        raise ConfigError(f"{refusal} it cannot be read as weights ({error})") from error
    if not isinstance(content, Mapping) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in content.items()
    ):
        raise ConfigError(f"{refusal} it is no table of named tensors")
    # Tensors that share memory are two in the file: we cannot know which name a model reads.
    return {key: value.detach().clone().contiguous() for key, value in content.items()}
