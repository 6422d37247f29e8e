"""The engine of many machines, on a real cluster of two nodes."""

import subprocess
import sys

import numpy as np
import pytest

from labelgrove.engines import open_engine
from labelgrove.errors import ConfigError, DataError, ResourceError, StorageError
from support import ray_work as work

pytestmark = pytest.mark.slow


def test_calls_get_the_values_of_refs(engine):
    first, second = engine.split(work.halves, engine.put("abcd"), parts=2)
    assert engine.get(engine.call(work.joined, second, first)) == "cdab"
    assert list(engine.results(engine.map(work.power, [2, 3], 2))) == [4, 9]
    (whole,) = engine.split(work.listed, "x", parts=1)
    assert engine.get(whole) == "x"
    assert engine.workers == 2


def test_arrays_come_back_with_their_bits(engine):
    array = np.random.default_rng(0).random((100, 7)).astype(np.float32)
    held = engine.put(array)
    np.testing.assert_array_equal(engine.get(engine.call(work.negative, held)), -array)


def test_both_nodes_work(engine, tmp_path):
    """A node has one core, so two calls run at the same time only on both."""
    assert all(engine.results(engine.map(work.meet, ["a", "b"], str(tmp_path))))


def test_a_stream_keeps_the_order_and_makes_few_workers(engine):
    done = list(engine.stream(work.make_counter, range(12)))
    assert [item for item, _, _ in done] == list(range(12))
    assert len({made for _, _, made in done}) <= engine.workers
    assert list(engine.stream(work.make_counter, [])) == []


def test_errors_are_those_of_the_function(engine):
    with pytest.raises(DataError, match=r"^a.jsonl, line 3: is not a number$"):
        engine.get(engine.call(work.refuse, 3))
    pytest.raises(ZeroDivisionError, engine.get, engine.call(work.divide, 0))
    with pytest.raises(
        StorageError, match=r"^a: cannot be written: the disk is full \(on [\d.]+\)$"
    ):
        engine.get(engine.call(work.overflow, "a"))


def test_errors_in_a_stream_are_those_of_the_function(engine):
    with pytest.raises(DataError, match=r"^a.jsonl, line 3: is not a number$"):
        list(engine.stream(work.make_refusing, [3]))
    with pytest.raises(ConfigError, match=r"^device: there is none$"):
        list(engine.stream(work.make_nothing, [3]))


def test_a_killed_worker_is_replaced(engine, tmp_path):
    assert engine.get(engine.call(work.die_once, tmp_path)) == "alive"


def test_a_task_that_always_dies_is_an_error_with_advice(engine):
    pytest.raises(ResourceError, engine.get, engine.call(work.die)).match("start the command again")


def test_addresses_and_workers_are_checked(engine):
    pytest.raises(ConfigError, open_engine, "ray", address="auto").match("connected to a Ray")
    pytest.raises(ConfigError, open_engine, "ray", workers=0).match("at least 1")


def test_a_ray_that_starts_too_slowly_is_an_error_with_advice(monkeypatch):
    ray = pytest.importorskip("ray")

    def slow(**options):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", slow)
    pytest.raises(ResourceError, open_engine, "ray").match(r"timed out .*: start the command again")


def test_without_ray_the_extra_is_named():
    source = """
import sys
sys.modules["ray"] = None
import labelgrove.engines
try:
    labelgrove.engines.open_engine("ray")
except labelgrove.errors.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.startswith("the engine ray needs the extra `ray`: pip install"), done.stderr
