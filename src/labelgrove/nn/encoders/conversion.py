"""Pickled weights of an encoder (pytorch_model.bin) as safetensors, converted once.

Loading a pickle can run any code. ``torch.load(weights_only=True)`` reads tensors and plain values
and refuses everything else, but old files deserve no more trust than that: we convert only where
the user says so, and say what was written.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from labelgrove.core.memory import format_size
from labelgrove.core.storing import storing
from labelgrove.errors import ConfigError, MissingExtraError, warn

if TYPE_CHECKING:
    from torch import Tensor

SETTING = "encoder.convert_weights"
WEIGHTS = "model.safetensors"
PICKLED = ["pytorch_model*.bin"]  # one file, or numbered pieces with an index beside them
_SAFE_SINCE = (2, 6)  # of torch: before, weights_only could be tricked (CVE-2025-32434)


def has_pickled_weights(folder: Path) -> bool:
    """Whether a folder has a config and pickled weights."""
    return (folder / "config.json").is_file() and any(folder.glob(PICKLED[0]))


def convert_weights_of(folder: Path, name: str) -> None:
    """Writes safetensors beside the pickled weights of a folder, or of the Hub's cache."""
    target = folder / WEIGHTS
    temporary = target.with_name(f".{WEIGHTS}.labelgrove-tmp-{uuid.uuid4().hex[:12]}")
    files = sorted(folder.glob(PICKLED[0]))
    size = format_size(sum(file.stat().st_size for file in files))
    several = "" if len(files) == 1 else f" and {len(files) - 1} more"
    warn(
        f"encoder {name!r}: {SETTING} converts {files[0].name}{several} ({size}) to {target}; "
        "the tensors are read as data, without running code, and this happens once"
    )
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise MissingExtraError("torch", "converting weights") from error
    try:
        tensors = {key: value for file in files for key, value in _tensors(file, name).items()}
        with storing(target):
            save_file(tensors, temporary, metadata={"format": "pt"})
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


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
