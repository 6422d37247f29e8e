"""Tensors of a training run on disk: checkpoints, and the weights of the best evaluation."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from labelgrove.core.part import Part
from labelgrove.disk.bundle import read_bundle, write_bundle
from labelgrove.errors import ConfigError, ModelFormatError

_BF16 = "bf16:"  # NumPy has no bfloat16, so its bits are stored as int16 under a marked name


def to_part(config: dict[str, object], groups: Mapping[str, Mapping[str, Tensor]]) -> Part:
    """A part with groups of named tensors; tensors on the CPU are not copied."""
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            on_host = tensor.detach().cpu()
            if on_host.dtype == torch.bfloat16:
                arrays[f"{_BF16}{group}/{name}"] = on_host.view(torch.int16).numpy()
            else:
                arrays[f"{group}/{name}"] = on_host.numpy()
    return Part(config, arrays)


def from_part(part: Part, group: str) -> dict[str, Tensor]:
    """One group of a part's tensors; they share the part's memory, so do not write to them."""
    tensors = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # read-only maps: we only copy from them
        for name, array in part.arrays.items():
            plain = name.removeprefix(_BF16)
            if plain.startswith(f"{group}/"):
                tensor = torch.from_numpy(array if array.size else np.array(array))
                values = tensor.view(torch.bfloat16) if plain != name else tensor
                tensors[plain.removeprefix(f"{group}/")] = values
    return tensors


def fill(targets: Mapping[str, Tensor], sources: Mapping[str, Tensor], what: str) -> None:
    """Copies tensors into those of the same names; a name or shape that differs is an error."""
    if targets.keys() != sources.keys():
        name = min(targets.keys() ^ sources.keys())
        raise ModelFormatError(f"{what}: does not hold this model's tensors ({name} differs)")
    with torch.no_grad():
        for name, target in targets.items():
            if target.shape != sources[name].shape:
                raise ModelFormatError(
                    f"{what}: {name} has the shape {tuple(sources[name].shape)}, "
                    f"not {tuple(target.shape)}"
                )
            target.copy_(sources[name])


class BestWeights:
    """The weights of the best evaluation so far, in a folder or, without one, in memory.

    A checkpoint names the step of its best weights, so they stay until no checkpoint needs them.
    """

    def __init__(self, folder: Path | None, *, writes: bool = True) -> None:
        self.folder = folder
        self.writes = writes
        self._in_memory: dict[str, Tensor] = {}
        self._named: list[int] = []

    def save(self, model: nn.Module, step: int) -> None:
        """Stores the model's weights as those of ``step``."""
        tensors = model.state_dict()
        if self.folder is None:
            self._in_memory = {n: t.detach().to("cpu", copy=True) for n, t in tensors.items()}
        elif self.writes:
            parts = {"m": to_part({}, {"model": tensors})}
            path, fields = self._path(step), {"step": step}
            write_bundle(path, kind="weights", fields=fields, parts=parts, replace=True)

    def load(self, model: nn.Module, step: int) -> None:
        """Gives the model the weights of ``step``."""
        if self.folder is None:
            fill(model.state_dict(), self._in_memory, "the best weights")
            return
        path = self._path(step)
        part = read_bundle(path, kind="weights").parts["m"]
        fill(model.state_dict(), from_part(part, "model"), str(path))

    def named_by_checkpoint(self, step: int | None) -> None:
        """Drops all weights but those of ``step`` and of the step that was named before it."""
        self._named = [*self._named[-1:], *([] if step is None else [step])]
        if self.folder is None or not self.writes:
            return
        paths = {self._path(s) for s in self._named}
        for path in self.folder.glob("step-*"):
            if path not in paths:
                shutil.rmtree(path, ignore_errors=True)

    def _path(self, step: int) -> Path:
        if self.folder is None:
            raise ConfigError("weights kept in memory have no path")
        return self.folder / f"step-{step:012d}"
