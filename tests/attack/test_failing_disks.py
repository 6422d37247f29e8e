"""When the disk is full or broken, a command ends with a sentence, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.scenarios import SCENARIOS, Arena
from support.zygote import Outcome

# What the user named, or is told about: a run folder and a study are named after the output.
KNOWN = ("model", "answers.jsonl", "tuned.toml")
PRIVATE = (".labelgrove-tmp-", ".partial", ".tmp", "Traceback")
FAULTS = ("full", "no space once", "broken", "broken sync")


@pytest.mark.parametrize("name", SCENARIOS)
def test_faults_at_any_call(
    arena: Callable[[str], Arena], chosen: Any, tally: Counter[str], name: str
) -> None:
    place = arena(name)
    attacks = [(kind, at) for kind in FAULTS for at in range(1, counted(place, kind) + 1)]
    for kind, at in chosen(attacks, 1, 0.35 / len(SCENARIOS)):
        folder = place.fresh()
        outcome = place.run(folder, harm={"kind": kind, "at": at})
        about = f"{kind} at call {at}: {outcome.calls[at - 1 : at]}"
        try:
            check_refused(place, folder, outcome)
        except AssertionError as error:
            raise AssertionError(f"{about}\n{outcome.stderr}") from error
        tally[f"disk {kind}"] += 1


def counted(place: Arena, kind: str) -> int:
    """How many of the calls can meet this fault."""
    names = [name for name, _ in place.calls]
    if kind == "broken sync":
        return names.count("fsync")
    if kind == "short":
        return names.count("write")
    if kind == "broken":
        return len(names)
    return sum(name not in ("rmdir", "unlink", "remove") for name in names)


def check_refused(place: Arena, folder: Path, outcome: Outcome) -> None:
    assert not any(word in outcome.stderr for word in PRIVATE)
    if outcome.status == 0:  # the call did not matter: a note, or something to delete
        assert place.check_whole(folder)
    else:
        assert outcome.status == 1
        assert outcome.facts["error"] == "StorageError"
        message = outcome.stderr.strip().splitlines()[-1]
        assert message.startswith("error: ")
        assert any(name in message for name in KNOWN)
        assert "No space left on device" in message or "Input/output error" in message
        place.check_whole(folder)
    place.check_continues(folder)


@pytest.mark.parametrize("name", SCENARIOS)
def test_short_writes_are_continued(
    arena: Callable[[str], Arena], chosen: Any, tally: Counter[str], name: str
) -> None:
    place = arena(name)
    for at in chosen(range(1, counted(place, "short") + 1), 1, 0.04 / len(SCENARIOS)):
        folder = place.fresh()
        outcome = place.run(folder, harm={"kind": "short", "at": at})
        assert outcome.status == 0, outcome.stderr
        assert place.check_whole(folder), f"write {at} was cut short"
        tally["short writes"] += 1
