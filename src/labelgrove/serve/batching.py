"""Batches: requests that arrive at the same time go through the model together.

One thread runs the model. While it is busy, requests queue; the next batch takes up to
``batch_texts`` texts of them. An idle model may wait ``batch_ms`` for more. Only requests with
equal options are predicted together, so that no answer depends on the other requests. A batch
that nobody waits for any more ends at its next piece.

The thread takes its batches itself: an event loop that is busy refusing requests must not keep the
model waiting.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from labelgrove.methods.explaining.explanation import BOUND_CHARS
from labelgrove.serve.metrics import ModelMetrics
from labelgrove.serve.problems import Problem
from labelgrove.serve.served import Answering, LabelRow, Options
from labelgrove.serve.settings import ServeParams

TEXT_COST = 1000  # in characters
# Refusals wait: clients that ask again at once would take the time that answers need.
REFUSAL_SECONDS = 0.5
# (options, texts, wanted) -> what is common to all answers, and one answer per text; it may raise
# when it is no longer wanted.
Answers = tuple[Answering, Sequence[LabelRow]]
Answer = Callable[[Options, list[str], Callable[[], bool]], Answers]


@dataclass(frozen=True)
class Answered:
    """The answers to one request's texts, and the seconds it waited and the model worked."""

    shared: Answering
    rows: Sequence[LabelRow]
    waiting: float
    working: float


@dataclass(eq=False)
class _Job:
    texts: list[str]
    options: Options
    done: asyncio.Future[Answered]
    arrived: float
    started: float | None = None

    @property
    def cost(self) -> int:
        """An estimate of its work, in characters: those that are read, and some for each text."""
        if not self.options.explain:
            return sum(TEXT_COST + len(text) for text in self.texts)
        read = sum(TEXT_COST + min(len(text), BOUND_CHARS) for text in self.texts)
        return read * self.options.k


class Batcher:
    """Queues requests, refuses those that would wait too long, and answers batches."""

    def __init__(self, answer: Answer, params: ServeParams, metrics: ModelMetrics) -> None:
        self._answer = answer
        self._params = params
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="labelgrove-model", daemon=True)
        # Guards what both threads change; adding to the queue notifies.
        self._changed = threading.Condition()
        self._queue: deque[_Job] = deque()
        self._waiting = 0  # texts queued or being worked on
        self._cost = 0  # of these texts
        self._seconds_per_cost = 0.0
        self._closing = False

    async def __aenter__(self) -> Batcher:
        self._thread.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        with self._changed:
            self._closing = True
            jobs, self._queue = self._queue, deque()
            self._changed.notify()
        for job in jobs:
            if not job.done.done():
                job.done.set_exception(Problem("stopping", "the server is stopping"))
        await asyncio.to_thread(self._thread.join)

    @property
    def running(self) -> bool:
        """Whether requests would be answered."""
        return self._thread.is_alive() and not self._closing

    async def ask(self, texts: list[str], options: Options) -> Answered:
        """Answers to ``texts``, or a Problem: 429 if too much waits, 503 after the time limit."""
        job = _Job(texts, options, self._loop.create_future(), time.perf_counter())
        with self._changed:
            if (refused := self._refusal(len(texts))) is None:
                self._queue.append(job)
                self._count([job], 1)
                self._changed.notify()
        if refused is not None:
            await asyncio.sleep(0 if self._closing else REFUSAL_SECONDS)
            raise refused
        try:
            async with asyncio.timeout(self._params.max_seconds):
                return await job.done
        except TimeoutError:
            if job.started is None:
                raise self._overloaded() from None
            limit = f"{self._params.max_seconds:g} s"
            detail = f"predicting took more than {limit}; send fewer texts"
            wait = self._expected_wait()
            raise Problem("time-limit", detail, retry_after=wait) from None
        finally:
            self._forget(job)

    def _refusal(self, texts: int) -> Problem | None:
        if self._closing:
            return Problem("stopping", "the server is stopping")
        too_many = self._waiting + texts > self._params.max_waiting
        late = self._expected_wait() > self._params.max_seconds / 2
        return self._overloaded() if self._waiting and (too_many or late) else None

    def _overloaded(self) -> Problem:
        detail = f"{self._waiting} texts are waiting; try again later"
        return Problem("overloaded", detail, retry_after=self._expected_wait())

    def _expected_wait(self) -> float:
        return self._cost * self._seconds_per_cost

    def _count(self, jobs: Sequence[_Job], sign: int) -> None:
        texts = sign * sum(len(job.texts) for job in jobs)
        self._waiting += texts
        self._cost += sign * sum(job.cost for job in jobs)
        self._metrics.waiting_texts.inc(texts)

    def _forget(self, job: _Job) -> None:
        """Removes a job that was given up from the queue."""
        with self._changed:
            if job.started is None and job in self._queue:
                self._queue.remove(job)
                self._count([job], -1)

    def _run(self) -> None:
        """The model's thread."""
        while jobs := self._next_batch():
            outcomes = self._work(jobs)
            texts = sum(len(job.texts) for job in jobs)
            started = jobs[0].started or 0.0
            working = time.perf_counter() - started
            cost = sum(job.cost for job in jobs)
            with self._changed:
                self._count(jobs, -1)
                self._seconds_per_cost += 0.2 * (working / cost - self._seconds_per_cost)
            self._loop.call_soon_threadsafe(self._finish, jobs, outcomes, texts, working)

    def _next_batch(self) -> list[_Job]:
        """Waits for a request, then for more until the batch is full or its time is over; empty
        when the service stops."""
        with self._changed:
            while True:
                if self._closing:
                    return []
                if not self._queue:
                    self._changed.wait()
                    continue
                left = self._queue[0].arrived + self._params.batch_ms / 1000 - time.perf_counter()
                if left <= 0 or self._waiting >= self._params.batch_texts:
                    return self._take()
                self._changed.wait(left)

    def _take(self) -> list[_Job]:
        jobs: list[_Job] = []
        texts, now = 0, time.perf_counter()
        while self._queue:
            texts += len(self._queue[0].texts)
            if jobs and texts > self._params.batch_texts:
                break
            jobs.append(self._queue.popleft())
            jobs[-1].started = now
        return jobs

    def _finish(
        self, jobs: list[_Job], outcomes: list[Answers | Exception], texts: int, working: float
    ) -> None:
        """Gives every job its outcome, in the event loop."""
        self._metrics.batch_texts.observe(texts)
        self._metrics.batch_seconds.observe(working)
        for job, outcome in zip(jobs, outcomes, strict=True):
            waited = (job.started or job.arrived) - job.arrived
            self._metrics.waiting_seconds.observe(waited)
            if job.done.done():  # it was given up
                continue
            if isinstance(outcome, Exception):
                job.done.set_exception(outcome)
            else:
                shared, rows = outcome
                job.done.set_result(Answered(shared, rows, waited, working))

    def _work(self, jobs: list[_Job]) -> list[Answers | Exception]:
        """An outcome per job, which may be an exception; in the model's thread."""
        groups: dict[Options, list[_Job]] = {}
        for job in jobs:
            groups.setdefault(job.options, []).append(job)
        outcomes: dict[_Job, Answers | Exception] = {}
        for options, group in groups.items():
            wanted = partial(_any_waits, group)
            try:
                texts = [text for job in group for text in job.texts]
                shared, rows = self._answer(options, texts, wanted)
            except Exception as error:
                if len(group) == 1 or not wanted():
                    outcomes |= dict.fromkeys(group, error)
                else:  # one of them may be the reason; the others must still be answered
                    outcomes |= {job: self._work([job])[0] for job in group}
                continue
            start = 0
            for job in group:
                end = start + len(job.texts)
                outcomes[job] = shared, rows[start:end]
                start = end
        return [outcomes[job] for job in jobs]


def _any_waits(jobs: Sequence[_Job]) -> bool:
    return any(not job.done.done() for job in jobs)
