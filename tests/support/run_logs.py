"""What a run folder's log tells, and trainings that are interrupted over one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelgrove.core.callbacks import Event
from labelgrove.disk.run_folder import RunFolder


def computed(folder: Path, *, last_run: bool = False) -> list[str]:
    """The stages that were computed, not reused, over all runs in the folder, in order.

    With ``last_run``, only since the folder was last opened.
    """
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    if last_run:
        start = max(n for n, event in enumerate(events) if event["kind"] == "run_start")
        events = events[start:]
    return [event["stage"] for event in events if event["kind"] == "stage_computing"]


def fitted_in(folder: Path, model: Any, documents: Any) -> Any:
    """The model, fitted with a run folder."""
    with RunFolder(folder) as run:
        return model.fit(*documents, run=run)


class Enough(Exception):
    """Ends a training."""


def interrupted(
    make: Callable[[], Any], documents: Any, folder: Path, stop: Callable[[Event], bool]
) -> None:
    """Fits a model until an event at which it is to stop."""

    def listen(event: Event) -> None:
        if stop(event):
            raise Enough

    with RunFolder(folder) as run, pytest.raises(Enough):
        make().fit(*documents, callbacks=[listen], run=run)


def resumed(
    make: Callable[[], Any], documents: Any, folder: Path
) -> tuple[Any, list[tuple[str, int]]]:
    """The model that a run folder leads to, and the updates that it still needed."""
    steps: list[tuple[str, int]] = []

    def watch(event: Event) -> None:
        if event.kind == "metrics" and "loss" in event.values:
            steps.append((event.stage, event.values["step"]))

    with RunFolder(folder) as run:
        return make().fit(*documents, callbacks=[watch], run=run), steps
