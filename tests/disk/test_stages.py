"""Stages are computed once for equal arguments, and announced either way."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from labelgrove.core.callbacks import Event, Reporter
from labelgrove.core.params import Params
from labelgrove.core.part import Part
from labelgrove.core.resources import Resources, current, using
from labelgrove.disk.run_folder import Checkpoints, RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import ConfigError

calls = []


@dataclass(frozen=True)
class Number:
    value: int

    def state(self):
        return Part({"value": self.value})

    @classmethod
    def from_state(cls, part):
        return cls(part.config["value"])


@dataclass
class Settings(Params):
    factor: int = 2
    log_every: int = 10

    def identity(self):
        return {"factor": self.factor}


def double(x) -> Number:
    calls.append(x)
    return Number(2 * x)


def add(number, more, *, threads=None) -> Number:
    calls.append((number, more))
    return Number(number.value + more)


def scaled(x, settings) -> Number:
    return Number(x * settings.factor)


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


def test_a_stage_is_reused_when_its_arguments_are_equal(tmp_path):
    events = []
    with RunFolder(tmp_path / "run") as run:
        stages = Stages(Reporter([events.append]), run)
        assert [stages("twice", double, x=x).value.value for x in (1, 2, 1)] == [2, 4, 2]
    assert calls == [1, 2]
    assert [event.kind for event in events] == ["stage_start", "stage_end"] * 3


def test_a_made_argument_is_known_by_its_key_and_arrives_as_its_value(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        stages = Stages(Reporter(), run)
        first = stages("twice", double, x=1)
        assert stages("sum", add, number=first, more=3).value == Number(5)
        again = Stages(Reporter(), run)
        assert again("sum", add, number=again("twice", double, x=1), more=3).value == Number(5)
        assert again("sum", add, number=again("twice", double, x=2), more=3).value == Number(7)
    assert calls == [1, (Number(2), 3), 2, (Number(4), 3)]


def test_a_value_that_is_not_needed_is_not_made(tmp_path):
    def expensive() -> Number:
        calls.append("made")
        return Number(1)

    with RunFolder(tmp_path / "run") as run:
        for _ in range(2):
            stages = Stages(Reporter(), run)
            stages("sum", add, number=stages.derive(expensive, known_by=7), more=1)
    assert calls.count("made") == 1


def test_what_only_says_how_to_run_is_no_part_of_the_key(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        stages = Stages(Reporter(), run)
        first = stages("twice", double, x=1)
        keys = {stages("sum", add, number=first, more=1, threads=t).key for t in (1, 2, None)}
        assert len(keys) == 1
        versions = {stages("twice", double, x=1, version=v).key for v in (1, 2)}
        assert len(versions) == 2
        by_settings = [
            stages("scaled", scaled, x=1, settings=settings).key
            for settings in (Settings(), Settings(log_every=5), Settings(factor=3))
        ]
    assert by_settings[0] == by_settings[1] != by_settings[2]


def test_without_a_run_folder_nothing_is_hashed_or_kept(tmp_path):
    def anything(x) -> Part:
        return Part({"a": 1})

    made = Stages(Reporter())("s", anything, x=object())
    assert made.value.config == {"a": 1}
    assert made.key == ""
    with pytest.raises(ConfigError, match=r"run: must be a run folder: .*RunFolder\("):
        Stages(Reporter(), str(tmp_path))


def test_checkpoints_of_other_arguments_are_reported(tmp_path):
    messages = []

    def train(x, finishes, *, checkpoints=None) -> Part:
        assert checkpoints is not None
        Checkpoints(checkpoints).save(Part({}), step=5)
        if not finishes:
            raise KeyboardInterrupt
        return Part({})

    def attempt(x, *, finishes):
        with RunFolder(tmp_path / "run") as run:
            reporter = Reporter([lambda event: messages.append(event.values.get("text"))])
            Stages(reporter, run)("network", train, x=x, finishes=finishes)

    for _ in range(2):  # the second continues its own
        pytest.raises(KeyboardInterrupt, attempt, 1, finishes=False)
    assert not any(messages)
    attempt(2, finishes=True)
    (text,) = filter(None, messages)
    assert text.startswith("network: starts from the beginning; the checkpoints in")


def test_work_aside_is_done_meanwhile_and_kept_like_any_other(tmp_path):
    with RunFolder(tmp_path / "run") as run:
        started, events = threading.Event(), list[Event]()
        stages = Stages(Reporter([events.append]), run)

        def work(own):
            assert started.wait(10)  # the other stage runs first
            return own("aside", double, x=4).value

        result = stages.background(work)
        stages("first", double, x=1)
        started.set()
        assert result() == Number(8) and calls == [1, 4]
        assert list(stages.reporter.timings) == ["first", "aside"]
        assert stages.reporter.timings["aside"].cpu == 0
        assert {event.stage for event in events} == {"first"}
        assert stages("aside", double, x=4).value == Number(8) and calls == [1, 4]
        stages.close()


def test_errors_aside_come_with_the_result_and_closing_ends_work_aside():
    stages = Stages(Reporter())

    def work(own):
        raise ConfigError("wrong")

    result = stages.background(work)
    stages.close()
    pytest.raises(ConfigError, result).match("wrong")

    stages, ended = Stages(Reporter()), list[str]()

    def work(own):
        try:
            while True:
                for stop in own.stops:
                    stop(Event("progress", "long"))
        finally:
            ended.append("yes")

    stages.background(work)
    stages.close()
    assert ended == ["yes"]


def test_work_in_the_background_has_the_callers_resources():
    stages = Stages(Reporter())
    with using(threads=3, device="cpu"):
        result = stages.background(lambda own: current())
    assert result() == Resources(threads=3, device="cpu")
    stages.close()
