"""The stages of one training run: each is announced, timed, and reused when a run folder has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from labelgrove.core.callbacks import Reporter, Stage
from labelgrove.disk.part import Part
from labelgrove.disk.run_folder import RunFolder, stage_key
from labelgrove.errors import ConfigError


class Stages:
    """Runs named stages through a reporter and, when there is one, a run folder's cache.

    >>> stages = Stages(Reporter(()))
    >>> stages("double", {"of": 21}, lambda progress: Part({"answer": 42})).config
    {'answer': 42}
    """

    def __init__(self, reporter: Reporter, run: RunFolder | None = None) -> None:
        if isinstance(run, (str, Path)):
            raise ConfigError(
                f"run: must be a run folder: labelgrove.disk.run_folder.RunFolder({str(run)!r})"
            )
        self.reporter = reporter
        self.run = run
        self._keys: dict[str, str] = {}

    def __call__(
        self, name: str, inputs: Mapping[str, Any], compute: Callable[[Stage], Part]
    ) -> Part:
        """The stage's result: computed now, or as an earlier run with equal inputs left it."""
        with self.reporter.stage(name) as progress:
            if self.run is None:
                return compute(progress)
            self._keys[name] = stage_key(name, inputs)
            progress.reused = True

            def computing() -> Part:
                progress.reused = False
                return compute(progress)

            return self.run.stage(name, {"key": self._keys[name]}, computing)

    def checkpoint_folder(self, name: str) -> Path | None:
        """Where the stage that is being computed keeps checkpoints; None without a run folder.

        >>> Stages(Reporter(())).checkpoint_folder("network")
        """
        if self.run is None:
            return None
        own = self.run.checkpoint(name)
        if not own.steps() and own.others():
            self.reporter.message(
                f"{name}: begins anew, the checkpoints in {self.run.path} are of other settings"
            )
        return own.folder

    def key(self, name: str) -> str:
        """What stands for an earlier stage's result among the inputs of a later one.

        It is the hash of that stage's inputs, so results need not be hashed; without a run folder
        nothing is hashed at all and the key is empty.

        >>> Stages(Reporter(())).key("features")
        ''
        """
        return self._keys.get(name, "")
