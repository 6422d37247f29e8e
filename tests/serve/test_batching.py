"""Who shares a batch, who is refused, and what happens when one of many fails."""

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest

from labelgrove.serve import batching
from labelgrove.serve.batching import Batcher
from labelgrove.serve.metrics import Metrics
from labelgrove.serve.problems import Problem
from labelgrove.serve.served import Options
from labelgrove.serve.settings import ServeParams

pytestmark = [pytest.mark.slow, pytest.mark.anyio]
ONE = Options(1)

# The model waits until six texts are there, however long that takes.
FULL_AT_SIX = ServeParams(batch_ms=1e9, batch_texts=6, max_seconds=240)


class Echo:
    """Answers a text with itself and the options; remembers its batches; can be held."""

    def __init__(self, *, held=False):
        self.batches = []
        self.begun, self.go = threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def __call__(self, options, texts, wanted):
        self.begun.set()
        assert self.go.wait(240)
        self.batches.append((options, texts))
        if "bad" in texts:
            raise ValueError("a bad text")
        return "echo", [(text, options) for text in texts]


class Batching(Batcher):
    """A batcher with metrics of its own, and requests without options."""

    def __init__(self, answer, params, metrics=None):
        super().__init__(answer, params, metrics or Metrics().of("m"))

    async def ask(self, texts, options=ONE):
        return await super().ask(texts, options)


async def test_requests_that_wait_share_the_next_batch():
    echo = Echo(held=True)
    async with Batching(echo, ServeParams(batch_texts=3)) as batcher:
        first = asyncio.create_task(batcher.ask(["0"]))
        await asyncio.to_thread(echo.begun.wait)
        rest = [asyncio.create_task(batcher.ask([str(number)])) for number in range(1, 6)]
        await asyncio.sleep(0)  # now they wait
        echo.go.set()
        answers = await asyncio.gather(first, *rest)
    assert [answered.rows for answered in answers] == [[(str(n), ONE)] for n in range(6)]
    assert [texts for _, texts in echo.batches] == [["0"], ["1", "2", "3"], ["4", "5"]]
    assert answers[5].waiting > 0


class Waiting(threading.Condition):
    """Instead of waiting for a time, waits for ``count`` texts and then moves the clock."""

    def __init__(self, batcher, clock, count):
        super().__init__()
        self.batcher, self.clock, self.count = batcher, clock, count
        self.timeouts = []

    def wait(self, timeout=None):
        if timeout is not None:
            self.timeouts.append(timeout)
            while self.batcher._waiting < self.count:
                assert super().wait(240)
            self.clock[0] += timeout
            return False
        return super().wait()


async def test_an_idle_model_waits_for_company_until_the_batch_is_full_or_time_is_up(monkeypatch):
    echo = Echo()
    clock = [0.0]
    monkeypatch.setattr(batching, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    batcher = Batching(echo, ServeParams(batch_ms=500, batch_texts=4, max_seconds=240))
    batcher._changed = changed = Waiting(batcher, clock, 2)
    async with batcher:
        answers = await asyncio.gather(batcher.ask(["x"]), batcher.ask(["x"]))
    assert changed.timeouts == [0.5] and [answer.waiting for answer in answers] == [0.5, 0.5]
    params = ServeParams(batch_ms=1e9, batch_texts=4, max_seconds=240)
    async with Batching(echo, params) as batcher:
        await asyncio.gather(*(batcher.ask(["x"]) for _ in range(4)))
    assert [len(texts) for _, texts in echo.batches] == [2, 4]


async def test_different_options_are_never_answered_together():
    echo = Echo()
    async with Batching(echo, FULL_AT_SIX) as batcher:
        asked = (batcher.ask([str(n)], Options(1 + n % 2)) for n in range(6))
        answers = await asyncio.gather(*asked)
    assert [answered.rows for answered in answers] == [
        [(str(n), Options(1 + n % 2))] for n in range(6)
    ]
    assert echo.batches == [(Options(1), ["0", "2", "4"]), (Options(2), ["1", "3", "5"])]


async def test_a_request_larger_than_a_batch_stays_whole():
    echo = Echo()
    async with Batching(echo, ServeParams(batch_texts=2)) as batcher:
        assert len((await batcher.ask(["a", "b", "c"])).rows) == 3
    assert len(echo.batches) == 1


async def test_one_bad_request_does_not_spoil_its_neighbours():
    async with Batching(Echo(), FULL_AT_SIX) as batcher:
        asked = (batcher.ask([text] * 2) for text in ("good", "bad", "fine"))
        good, bad, fine = await asyncio.gather(*asked, return_exceptions=True)
    assert good.rows == [("good", ONE)] * 2
    assert isinstance(bad, ValueError)
    assert fine.rows == [("fine", ONE)] * 2


async def test_too_much_waiting_is_refused_after_a_moment():
    echo = Echo(held=True)
    metrics = Metrics()
    params = ServeParams(max_texts=3, max_waiting=4)
    async with Batching(echo, params, metrics.of("m")) as batcher:
        first = asyncio.create_task(batcher.ask(["a", "b", "c"]))
        await asyncio.sleep(0)  # now it waits
        asked = time.monotonic()
        with pytest.raises(Problem) as caught:
            await batcher.ask(["d", "e"])
        assert time.monotonic() - asked >= batching.REFUSAL_SECONDS == 0.5
        second = asyncio.create_task(batcher.ask(["d"]))
        await asyncio.sleep(0)
        assert 'labelgrove_waiting_texts{model="m"} 4.0\n' in metrics.text()
        echo.go.set()
        await asyncio.gather(first, second)
    assert (caught.value.status, caught.value.code) == (429, "overloaded")
    assert caught.value.headers["Retry-After"] == "1"
    assert 'labelgrove_waiting_texts{model="m"} 0.0\n' in metrics.text()


async def test_a_slow_model_refuses_before_the_time_limit_would(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(batching, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def slow(options, texts, wanted):
        now[0] += 24 * len(texts)
        return None, texts

    async with Batching(slow, ServeParams(max_seconds=240, batch_texts=1)) as batcher:
        for _ in range(5):  # it learns how slow the model is
            await batcher.ask(["x"])
        asked = (batcher.ask(["x"]) for _ in range(30))
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, Problem)]
    assert 0 < len(refused) < 30
    assert {problem.status for problem in refused} == {429}


class Timeouts:
    """Replaces ``asyncio.timeout``: remembers the limits, which end only on command.

    So no test depends on how busy the machine is.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float | None] = []
        self._open: list[tuple[asyncio.AbstractEventLoop, asyncio.Timeout]] = []
        self._make = asyncio.timeout
        monkeypatch.setattr(asyncio, "timeout", self._timeout)

    def _timeout(self, seconds: float | None) -> asyncio.Timeout:
        limit = self._make(None)
        self.seconds.append(seconds)
        self._open.append((asyncio.get_running_loop(), limit))
        return limit

    def end(self, number: int = -1) -> None:
        """Lets the time of one limit run out; from any thread."""
        loop, limit = self._open[number]

        def expire() -> None:
            limit.reschedule(loop.time())

        loop.call_soon_threadsafe(expire)


async def test_what_waits_past_the_time_limit_leaves_the_queue(monkeypatch):
    echo = Echo(held=True)
    metrics = Metrics()
    timeouts = Timeouts(monkeypatch)
    async with Batching(echo, ServeParams(max_seconds=2), metrics.of("m")) as batcher:
        first = asyncio.create_task(batcher.ask(["held"]))
        await asyncio.to_thread(echo.begun.wait)
        second = asyncio.create_task(batcher.ask(["waits"]))
        while len(timeouts.seconds) < 2:
            await asyncio.sleep(0)
        timeouts.end(0)
        timeouts.end(1)
        working, waiting = await asyncio.gather(first, second, return_exceptions=True)
        assert 'labelgrove_waiting_texts{model="m"} 1.0\n' in metrics.text()
        echo.go.set()
        later = await batcher.ask(["later"])
        assert later.rows == [("later", ONE)]
    assert timeouts.seconds == [2, 2, 2]
    assert (working.status, working.code) == (503, "time-limit")
    assert (waiting.status, waiting.code) == (429, "overloaded")
    assert [texts for _, texts in echo.batches] == [["held"], ["later"]]


async def test_work_for_a_request_that_was_given_up_is_no_longer_wanted():
    begun, wishes = threading.Event(), []

    def answer(options, texts, wanted):
        wishes.append(wanted())
        begun.set()
        while wanted():
            time.sleep(0.001)
        wishes.append(wanted())
        raise ValueError("given up")

    async with Batching(answer, FULL_AT_SIX) as batcher:
        asked = [asyncio.create_task(batcher.ask(["x"] * 3)) for _ in range(2)]
        await asyncio.to_thread(begun.wait)
        asked[0].cancel()
        await asyncio.sleep(0.01)
        assert wishes == [True]  # the other one of the batch still waits
        asked[1].cancel()
    assert wishes == [True, False]  # and nobody tries the requests again one by one


async def test_the_expected_wait_depends_on_characters_and_labels_to_explain():
    echo = Echo(held=True)
    waits = []
    async with Batching(echo, ServeParams(batch_texts=1)) as batcher:
        batcher._seconds_per_cost = 1e-6
        first = asyncio.create_task(batcher.ask(["x"]))
        await asyncio.to_thread(echo.begun.wait)
        for text, options in (("x", ONE), ("x" * 99_000, ONE), ("x", Options(9, explain=True))):
            before = batcher._expected_wait()
            task = asyncio.create_task(batcher.ask([text], options))
            await asyncio.sleep(0)
            waits.append(batcher._expected_wait() - before)
            task.cancel()
            await asyncio.sleep(0)
        echo.go.set()
        await first
        assert batcher._cost == batcher._waiting == 0
    assert waits == pytest.approx([0.001001, 0.1, 0.009009])


async def test_stopping_tells_those_who_still_wait():
    echo = Echo(held=True)
    async with Batching(echo, ServeParams()) as batcher:
        asked = [asyncio.create_task(batcher.ask(["x"]))]
        await asyncio.to_thread(echo.begun.wait)
        asked.append(asyncio.create_task(batcher.ask(["x"])))
        await asyncio.sleep(0)  # now it waits
        assert batcher.running

        def release():
            while batcher.running:
                time.sleep(0.01)
            echo.go.set()

        threading.Thread(target=release).start()
    assert not batcher.running
    first, second = await asyncio.gather(*asked, return_exceptions=True)
    assert first.rows == [("x", ONE)]  # the model had begun
    assert (second.status, second.code) == (503, "stopping")
