"""Requests that come at the same time go through the model together.

One thread runs the model. While it is busy, requests gather; then the next batch starts with those
that wait, up to ``batch_texts`` texts. An idle model may wait ``batch_ms`` for company. Requests of
one batch are answered together where all their options are equal, so that no answer depends on who
came along.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from labelgrove.serve.metrics import Metrics
from labelgrove.serve.problems import Problem
from labelgrove.serve.settings import ServeParams

# (options, texts) -> something all requests share, and one answer per text.
Answer = Callable[[Any, list[str]], tuple[Any, Sequence[Any]]]


@dataclass(frozen=True)
class Answered:
    """The answers to one request's texts, and how long it waited and was worked on."""

    shared: Any
    rows: Sequence[Any]
    waiting: float
    working: float


@dataclass(eq=False)
class _Job:
    texts: list[str]
    options: Hashable
    done: asyncio.Future[Answered]
    arrived: float = field(default_factory=time.perf_counter)
    started: float | None = None


class Batcher:
    """Takes requests, refuses those that would wait too long, and has batches answered.

    >>> async def two_requests():
    ...     async with Batcher(lambda options, texts: ("m", [t.upper() for t in texts])) as batcher:
    ...         return await asyncio.gather(batcher.ask(["a"]), batcher.ask(["b", "c"]))
    >>> [answered.rows for answered in asyncio.run(two_requests())]
    [['A'], ['B', 'C']]
    """

    def __init__(
        self, answer: Answer, params: ServeParams | None = None, metrics: Metrics | None = None
    ) -> None:
        self._answer = answer
        self._params = ServeParams() if params is None else params
        self._metrics = Metrics() if metrics is None else metrics
        self._queue: deque[_Job] = deque()
        self._current: list[_Job] = []
        self._more = asyncio.Event()
        self._waiting = 0  # texts queued or being worked on
        self._seconds_per_text = 0.0
        self._thread = ThreadPoolExecutor(1, "labelgrove-model")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Batcher:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        for job in [*self._current, *self._queue]:
            if not job.done.done():
                job.done.set_exception(Problem(503, "stopping", "the server is stopping"))
        self._thread.shutdown(wait=True)

    @property
    def running(self) -> bool:
        """Whether requests would be answered."""
        return self._task is not None and not self._task.done()

    async def ask(self, texts: list[str], options: Hashable = None) -> Answered:
        """Answers to ``texts``, or a Problem: 429 when too much waits, 503 past the time limit."""
        self._admit(len(texts))
        job = _Job(texts, options, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._change_waiting(len(texts))
        self._more.set()
        try:
            async with asyncio.timeout(self._params.max_seconds):
                return await job.done
        except TimeoutError:
            if job.started is None:
                raise self._overloaded() from None
            raise Problem(
                503,
                "time-limit",
                f"predicting took more than {self._params.max_seconds:g} s; send fewer texts",
                retry_after=self._expected_wait(),
            ) from None
        finally:
            if job.started is None:  # given up while it waited
                with suppress(ValueError):
                    self._queue.remove(job)
                    self._change_waiting(-len(texts))

    def _admit(self, texts: int) -> None:
        if self._waiting == 0:
            return
        too_many = self._waiting + texts > self._params.max_waiting
        if too_many or self._expected_wait() > self._params.max_seconds / 2:
            raise self._overloaded()

    def _overloaded(self) -> Problem:
        return Problem(
            429,
            "overloaded",
            f"{self._waiting} texts are waiting; try again later",
            retry_after=self._expected_wait(),
        )

    def _expected_wait(self) -> float:
        return self._waiting * self._seconds_per_text

    def _change_waiting(self, by: int) -> None:
        self._waiting += by
        self._metrics.set("labelgrove_waiting_texts", self._waiting)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._gather()
            jobs = self._current = self._take()
            if not jobs:  # given up meanwhile
                continue
            texts = sum(len(job.texts) for job in jobs)
            started = time.perf_counter()
            for job in jobs:
                job.started = started
                self._metrics.observe("labelgrove_waiting_seconds", started - job.arrived)
            outcomes = await loop.run_in_executor(self._thread, self._work, jobs)
            working = time.perf_counter() - started
            self._change_waiting(-texts)
            self._seconds_per_text += 0.2 * (working / texts - self._seconds_per_text)
            self._metrics.observe("labelgrove_batch_texts", texts)
            self._metrics.observe("labelgrove_batch_seconds", working)
            for job, outcome in zip(jobs, outcomes, strict=True):
                if job.done.done():  # nobody waits for it any more
                    continue
                if isinstance(outcome, BaseException):
                    job.done.set_exception(outcome)
                else:
                    shared, rows = outcome
                    job.done.set_result(Answered(shared, rows, started - job.arrived, working))

    async def _gather(self) -> None:
        """Waits for a first request, then for more until the batch is full or its time is up."""
        while not self._queue:
            self._more.clear()
            await self._more.wait()
        deadline = self._queue[0].arrived + self._params.batch_ms / 1000
        while self._queue and self._waiting < self._params.batch_texts:
            left = deadline - time.perf_counter()
            if left <= 0:
                return
            self._more.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._more.wait()

    def _take(self) -> list[_Job]:
        jobs: list[_Job] = []
        texts = 0
        while self._queue:
            texts += len(self._queue[0].texts)
            if jobs and texts > self._params.batch_texts:
                break
            jobs.append(self._queue.popleft())
        return jobs

    def _work(self, jobs: list[_Job]) -> list[Any]:
        """In the model's thread: an outcome per job, an exception where it failed."""
        groups: dict[Hashable, list[int]] = {}
        for position, job in enumerate(jobs):
            groups.setdefault(job.options, []).append(position)
        outcomes: list[Any] = [None] * len(jobs)
        for options, positions in groups.items():
            together = [text for position in positions for text in jobs[position].texts]
            try:
                shared, rows = self._answer(options, together)
            except Exception as error:
                if len(positions) == 1:
                    outcomes[positions[0]] = error
                else:  # one may be to blame: the others shall not suffer
                    for position in positions:
                        outcomes[position] = self._work([jobs[position]])[0]
                continue
            start = 0
            for position in positions:
                end = start + len(jobs[position].texts)
                outcomes[position] = (shared, rows[start:end])
                start = end
        return outcomes
