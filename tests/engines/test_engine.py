"""The engine of one machine."""

from pathlib import Path

import pytest

from labelgrove.core.callbacks import Event
from labelgrove.engines import Engine, open_engine
from labelgrove.errors import ConfigError
from support.ray_work import halves

pytestmark = pytest.mark.slow


def test_calls_get_the_values_of_refs():
    with open_engine("local") as engine:
        first, second = engine.split(halves, engine.put("abcd"), parts=2)
        assert engine.get(engine.call(str.__add__, second, first)) == "cdab"
        assert list(engine.results(engine.map(pow, [2, 3], 2))) == [4, 9]


def test_a_stream_makes_its_worker_once():
    made = []

    def make():
        made.append(1)
        return str

    assert list(Engine().stream(make, [1, 2, 3])) == ["1", "2", "3"]
    assert len(made) == 1


def test_work_together_is_work_alone():
    events = []

    def work(tell):
        tell(Event("message", values={"text": "hello"}))
        return "done"

    result = Engine().together(work, folder=Path(), device="cpu", threads=1, callback=events.append)
    assert (result, events[0].values["text"]) == ("done", "hello")


def test_wrong_names_and_flags_are_errors():
    pytest.raises(ConfigError, open_engine, "dask").match("must be one of local, ray, got 'dask'")
    pytest.raises(ConfigError, open_engine, "local", workers=2).match("are for the engine ray")
