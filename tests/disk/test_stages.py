"""Stages are computed once for equal inputs, and announced either way."""

from __future__ import annotations

from pathlib import Path

import pytest

from labelgrove.core.callbacks import Event, Reporter
from labelgrove.disk.part import Part
from labelgrove.disk.run_folder import Checkpoints, RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import ConfigError


def test_a_stage_is_reused_when_its_inputs_are_equal(tmp_path: Path) -> None:
    computed: list[int] = []
    events: list[Event] = []

    def twice(x: int, stages: Stages) -> int:
        def compute(_: object) -> Part:
            computed.append(x)
            return Part({"value": 2 * x})

        return int(stages("twice", {"x": x}, compute).config["value"])

    with RunFolder(tmp_path / "run") as run:
        stages = Stages(Reporter([events.append]), run)
        assert [twice(x, stages) for x in (1, 2, 1)] == [2, 4, 2]
    assert computed == [1, 2]
    assert [event.kind for event in events] == ["stage_start", "stage_end"] * 3


def test_keys_chain_stages_without_hashing_results(tmp_path: Path) -> None:
    keys = []
    with RunFolder(tmp_path / "run") as run:
        for x in (1, 2, 1):
            stages = Stages(Reporter(), run)
            stages("first", {"x": x}, lambda _: Part({"same": "result"}))
            keys.append(stages.key("first"))
    assert keys[0] == keys[2] != keys[1]


def test_without_a_run_folder_nothing_is_kept() -> None:
    stages = Stages(Reporter())
    assert stages("s", {"x": object()}, lambda _: Part({"a": 1})).config == {"a": 1}
    assert stages.key("s") == ""


def test_a_path_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run: must be a run folder: .*RunFolder\("):
        Stages(Reporter(), str(tmp_path))  # type: ignore[arg-type]


def test_checkpoints_of_other_inputs_are_told_of(tmp_path: Path) -> None:
    said: list[str] = []

    def attempt(x: int, *, finishes: bool) -> None:
        with RunFolder(tmp_path / "run") as run:
            stages = Stages(Reporter([lambda event: said.append(event.values.get("text"))]), run)

            def compute(_: object) -> Part:
                folder = stages.checkpoint_folder("network")
                assert folder is not None
                Checkpoints(folder).save(Part({}), step=5)
                if not finishes:
                    raise KeyboardInterrupt
                return Part({})

            stages("network", {"x": x}, compute)

    for _ in range(2):  # the second goes on with its own
        with pytest.raises(KeyboardInterrupt):
            attempt(1, finishes=False)
    assert not any(said)
    attempt(2, finishes=True)
    (text,) = filter(None, said)
    assert text.startswith("network: begins anew, the checkpoints in")
