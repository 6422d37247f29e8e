"""Where ``labelgrove train`` writes the model, and keeps what an interrupted run has finished."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from labelgrove.disk.run_folder import RunFolder, RunStatus


@dataclass(frozen=True)
class Saving:
    """The model folder, and the run folder beside it or the one that is kept."""

    out: Annotated[Path | None, Option(help="Model folder to write.")] = None
    plan_only: Annotated[bool, Option("--plan", help="Print the plan and stop.")] = False
    no_estimate: Annotated[
        bool, Option("--no-estimate", help="Do not estimate the time from a small sample.")
    ] = False
    resume: Annotated[bool, Option("--resume", help="Continue an interrupted run.")] = False
    run: options.RunFolder = None
    force: options.Force = False

    def check(self) -> None:
        """Raises an error, before the work, if a model is to be written and cannot be."""
        if self.plan_only:
            return
        if self.out is None:
            raise typer.BadParameter("give the folder to write the model to", param_hint="--out")
        common.check_model_folder(self.out, force=self.replaces)

    @property
    def folder(self) -> Path:
        """The model folder."""
        assert self.out is not None
        return self.out

    @property
    def private_run(self) -> Path:
        """The run folder of a model that is not there yet."""
        return self.folder.with_name(self.folder.name + ".run")

    @property
    def replaces(self) -> bool:
        """What an interrupted search left is replaced by what it finds when it goes on."""
        return self.force or (self.resume and self.run is None and self.private_run.is_dir())

    @contextmanager
    def opened(self, device: str | None) -> Iterator[RunFolder]:
        """The run folder during training. A private one stays only if it is worth resuming."""
        from labelgrove.core.processes import is_first_process, wait_for_all
        from labelgrove.disk.run_folder import RunFolder

        if not is_first_process():
            wait_for_all(device)  # until the first one has tidied up
        path = self.run or self.private_run
        if self.force and not self.resume and self.run is None and path.exists():
            # Opening it first raises an error if it is not a run folder or another process uses it.
            with RunFolder(path, resume=True) as old:
                old.remove()
        with RunFolder(path, resume=self.resume or self.run is not None) as run:
            if is_first_process():
                wait_for_all(device)
            try:
                yield run
            except BaseException as error:
                status = run.status()
                with suppress(StorageError):  # say first what went wrong first
                    if self.run is None and not _worth_resuming(status, error):
                        run.remove()
                    else:
                        run.log({"kind": "run_failed", "why": str(error) or type(error).__name__})
                if not isinstance(error, KeyboardInterrupt):
                    raise
                typer.echo(f"Interrupted. {_how_to_continue(path, status)}", err=True)
                raise typer.Exit(common.INTERRUPTED) from None
            if run.unfinished:
                flags = () if self.run is None else ("--force",)
                typer.echo(f"Interrupted. {_how_to_continue(path, run.status(), *flags)}", err=True)
            elif self.run is None:
                run.remove()


def _worth_resuming(status: RunStatus, error: BaseException) -> bool:
    """After a wrong setting, a few seconds' work would only block the next try."""
    costly = any(stage.name.startswith("network") for stage in status.stages)
    refused = isinstance(error, ConfigError)
    return bool(status.checkpoints or costly or (status.stages and not refused))


def _how_to_continue(path: Path, status: RunStatus, *flags: str) -> str:
    """The command that continues an interrupted run."""
    if not (status.stages or status.checkpoints):
        return "Nothing was finished yet."
    done = list(dict.fromkeys(stage.name for stage in status.stages))
    steps = {checkpoint.name: checkpoint.step for checkpoint in status.checkpoints}  # the last ones
    done += [f"{name} up to step {step}" for name, step in steps.items()]
    arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
    command = shlex.join([common.command_name(), *arguments, "--resume", *flags])
    return f"{path} has the finished work ({', '.join(done)}). Continue with:\n  {command}"
