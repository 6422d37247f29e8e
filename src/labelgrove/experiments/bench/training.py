"""Rows of a bench that are trained: each by a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from labelgrove.disk.run_folder import process_name, run_status


class Training(NamedTuple):
    """How ``labelgrove train`` ended: what it printed, and what it did in the run folder."""

    code: int
    output: str
    messages: str
    process: str  # see run_folder.process_name
    events: list[dict[str, Any]] = []


def train_elsewhere(arguments: Sequence[str]) -> Training:
    """A training that a worker starts; its messages are shown by who asked for it."""
    return train(arguments, stderr=subprocess.PIPE)


def train(arguments: Sequence[str], *, stderr: int | None) -> Training:
    """Runs ``labelgrove train``; its messages go to ``stderr``, see subprocess."""
    command = [sys.executable, "-m", "labelgrove", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            output, messages = process.communicate()
        except BaseException:
            process.kill()
            raise
    return Training(process.returncode, output, messages or "", process_name(process.pid))


def stage_seconds(cache: Path, events: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds of all stages that a run used, computed by it or by an earlier row."""
    kinds = ("stage_reused", "stage_stored")
    used = {(event["stage"], event["key"]) for event in events if event["kind"] in kinds}
    stages = [s for s in run_status(cache).stages if (s.name, s.key) in used]
    return {f"{stage.name} {stage.key}": float(stage.seconds or 0.0) for stage in stages}


def events_in(cache: Path) -> list[dict[str, Any]]:
    """The events in a run folder's log, without a line that a killed run left half-written."""
    log, events = cache / "log.jsonl", []
    for line in log.read_bytes().splitlines() if log.exists() else []:
        with suppress(ValueError):
            events.append(json.loads(line))
    return events
