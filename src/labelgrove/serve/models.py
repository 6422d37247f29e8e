"""The models of a service: each has its folder, limits, queue and thread, and file for feedback."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from labelgrove.data.corpus import LabelIndex
from labelgrove.disk.atomic import try_lock
from labelgrove.errors import ConfigError
from labelgrove.serve import schema
from labelgrove.serve.batching import Answered, Batcher
from labelgrove.serve.metrics import Metrics, ModelMetrics
from labelgrove.serve.problems import Problem, as_json
from labelgrove.serve.served import ModelFolder, Options
from labelgrove.serve.settings import ServeParams, listed

log = logging.getLogger(__name__)
REPORT = "report.html"
# Seconds to wait for the lock of a file of feedback that another program holds, and between two
# attempts.
LOCK_SECONDS, ATTEMPT_SECONDS = 5.0, 0.01
# Limits that a client cannot keep by itself; all others are told.
_OF_THE_SERVICE = (
    "max_requests",
    "max_waiting",
    "max_bodies",
    "max_header",
    "max_connections",
    "max_feedback",
)


@dataclass(frozen=True)
class Source:
    """A model to serve: its folder, and what belongs to it.

    ``report`` is shown at /report; the default is report.html in the model folder, unless it is a
    link. ``train`` is a corpus: explanations name its documents that are similar to the text.
    ``feedback`` is a file for what people say about suggestions.
    """

    name: str
    path: Path
    report: Path | None = None
    train: Path | None = None
    feedback: Path | None = None
    follow: bool = True  # a link to the report

    def with_report(self) -> Source:
        """The same with the report that is in the model folder, if no other is given."""
        report, own = self.report, self.path / REPORT
        if report is None and own.is_file():
            if own.is_symlink():
                log.warning("%s: is a link, which is not followed; use --report", own)
            else:
                return replace(self, report=own, follow=False)
        if report is not None and not report.is_file():
            raise ConfigError(f"{report}: no such file; labelgrove report --out writes one")
        return self


class FeedbackFile:
    """What people say about a model's suggestions: one line of JSON per text.

    The file is only ever appended to. A line is written as a whole under a lock that all worker
    processes share, and is on the disk before the client gets its answer. No thread waits for the
    lock: other routes need the threads. A line that a crash cut off stays alone: the next one
    begins a new line, and readers skip what is no JSON (``methods/updating/feedback.py``).
    No more is taken when the file has ``megabytes``.
    """

    def __init__(self, path: str | Path, megabytes: float) -> None:
        self.path = Path(path)
        self.limit = int(megabytes * 1e6)
        self._one_at_a_time = asyncio.Lock()  # the file's own lock is for other processes
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(self._opened())
        except OSError as error:
            raise ConfigError(
                f"{self.path}: feedback cannot be kept here ({error.strerror}); choose another "
                "--feedback folder"
            ) from error

    async def append(self, entry: Mapping[str, object]) -> None:
        """Adds a line, or raises a Problem and leaves the file as it was."""
        line = as_json(entry) + b"\n"
        clock = asyncio.get_running_loop().time
        end = clock() + LOCK_SECONDS
        try:
            async with asyncio.timeout_at(end):
                await self._one_at_a_time.acquire()
            try:
                while not await asyncio.to_thread(self._append, line):
                    if clock() > end:
                        raise TimeoutError
                    await asyncio.sleep(ATTEMPT_SECONDS)
            finally:
                self._one_at_a_time.release()
        except TimeoutError:
            log.error("%s: another program has locked the file", self.path)
            detail = "the file for feedback is locked by another program; try again later"
            raise Problem("feedback-locked", detail, retry_after=LOCK_SECONDS) from None
        except OSError as error:
            log.error("%s: feedback cannot be written: %s", self.path, error.strerror)
            raise Problem("feedback-full", "the feedback could not be written") from error

    def _append(self, line: bytes) -> bool:
        """Writes the line unless somebody else has the lock."""
        file = self._opened()
        try:
            if try_lock(file) is False:  # the lock ends when the file is closed
                return False
            size = os.fstat(file).st_size
            os.lseek(file, max(0, size - 1), os.SEEK_SET)
            if size and os.read(file, 1) != b"\n":
                line = b"\n" + line
            if size + len(line) > self.limit:
                raise Problem(
                    "feedback-full",
                    "the file for feedback is full; the person who runs the service can move "
                    "it away or raise max_feedback_mb",
                )
            try:
                rest = memoryview(line)
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
            return True
        finally:
            os.close(file)

    def _opened(self) -> int:
        # Opened for each line, so that the file can be moved away while the service runs.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        return os.open(self.path, flags, 0o600)  # it holds people's texts


class NamedModel:
    """One model of the service; requests come only while it is ``running``."""

    _batcher: Batcher
    _explainer: Batcher
    _metrics: ModelMetrics

    def __init__(self, source: Source, folder: ModelFolder, params: ServeParams) -> None:
        self.name = source.name
        self.source = source
        self.folder = folder
        self.params = params.checked()
        self.feedback: FeedbackFile | None = None
        if source.feedback is not None:
            self.feedback = FeedbackFile(source.feedback, params.max_feedback_mb)

    @asynccontextmanager
    async def running(self, metrics: Metrics) -> AsyncIterator[None]:
        """Looks for new models and answers requests."""
        own = self._metrics = metrics.of(self.name)
        watching = asyncio.create_task(self.folder.watch(self.params.reload_seconds, own))
        # A batch uses the model that is current when it begins.
        answer = lambda *work: self.folder.current.answer(*work)  # noqa: E731
        # Explanations take longest: they have a queue and a thread of their own, one at a time.
        alone = replace(self.params, batch_texts=1, batch_ms=0.0)
        async with (
            Batcher(answer, self.params, own) as self._batcher,
            Batcher(answer, alone, own) as self._explainer,
        ):
            yield
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    def check_ready(self) -> None:
        """Raises a Problem if requests would not be answered."""
        if not self._batcher.running:
            raise Problem("not-ready", "the service does not accept requests now")
        with self.folder.current.reading():
            pass

    async def ask(self, documents: list[schema.Document], options: Options) -> Answered:
        """The labels of documents, which may have fields."""
        batcher = self._explainer if options.explain else self._batcher
        answered = await batcher.ask(self._as_texts(documents), options)
        self._metrics.texts.inc(len(documents))
        return answered

    def _as_texts(self, documents: list[schema.Document]) -> list[str]:
        """Documents with fields as the model reads them, before they share a batch with others."""
        plain = [document for document in documents if isinstance(document, str)]
        if len(plain) == len(documents):
            return plain
        with self.folder.current.reading() as model:
            texts: list[str] = model.documents(documents)
        most = self.params.max_text_chars
        for number, text in enumerate(texts):
            if len(text) > most:
                detail = f"texts[{number}]: a document may have {most:,} characters"
                raise Problem("invalid-request", detail)
        return texts

    async def keep_feedback(self, given: schema.FeedbackRequest) -> schema.FeedbackResponse:
        """Writes one entry of feedback; the answer to POST /v1/feedback."""
        if self.feedback is None:
            detail = "this service keeps no feedback; start it with --feedback FOLDER"
            raise Problem("no-feedback", detail)
        self._as_texts([given.text])
        served = self.folder.current
        with served.reading() as model:
            entry, labels = _entry(given, model.index_, given.model or served.id)
        await self.feedback.append(entry)
        self._metrics.feedback.inc()
        return {"model": served.id, "labels": labels}

    def facts(self) -> schema.ModelResponse:
        """The answer to GET /v1/model."""
        limits = {
            name: value
            for name, value in self.params.get_params().items()
            if name.startswith("max_") and not name.startswith(_OF_THE_SERVICE)
        }
        return {
            **self.folder.current.facts(),
            "name": self.name,
            "report": self.source.report is not None,
            "feedback": self.feedback is not None,
            "ticked": self.params.ticked,
            "limits": limits,
        }

    def summary(self) -> schema.ModelSummary:
        """An entry of the answer to GET /v1/models."""
        takes_feedback = self.feedback is not None
        return {**self.folder.current.summary(), "name": self.name, "feedback": takes_feedback}


class Models:
    """The models of a service by name; ``default`` answers where a request names none."""

    def __init__(self, models: Sequence[NamedModel], default: str | None = None) -> None:
        self._models = {model.name: model for model in models}
        if not models or len(self._models) < len(models):
            raise ConfigError("a service needs models, each with a name of its own")
        name = models[0].name if default is None else default
        if name not in self._models:
            raise ConfigError(f"there is no model {name!r}, only {listed(self.names)}")
        self.default = self._models[name]

    @property
    def names(self) -> list[str]:
        """The names, in the order that was given."""
        return list(self._models)

    def __iter__(self) -> Iterator[NamedModel]:
        return iter(self._models.values())

    def named(self, name: str) -> NamedModel:
        """The model of this name, or a Problem that lists all names."""
        model = self._models.get(name)
        if model is None:
            raise Problem("no-model", f"there is no model {name!r}; there is {listed(self.names)}")
        return model

    @asynccontextmanager
    async def running(self, metrics: Metrics) -> AsyncIterator[None]:
        """All models, ready for requests."""
        async with AsyncExitStack() as stack:
            for model in self:
                await stack.enter_async_context(model.running(metrics))
            yield


def _entry(
    given: schema.FeedbackRequest, index: LabelIndex, model: str
) -> tuple[dict[str, object], list[str]]:
    """A line of the file with feedback, and the ids of the chosen labels."""
    chosen = dict.fromkeys(index.column(label) for label in given.labels)
    offers = [(index.column(offer.id), offer.score) for offer in given.suggestions]
    ids, names = index.ids, index.names
    labels = [ids[column] for column in chosen]
    entry: dict[str, object] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model,
        "text" if isinstance(given.text, str) else "fields": given.text,
        "labels": labels,
        "suggestions": [{"id": ids[column], "score": score} for column, score in offers],
    }
    if given.threshold is not None:
        entry["threshold"] = given.threshold
    mentioned = chosen | dict.fromkeys(column for column, _ in offers)
    entry["names"] = {ids[c]: names[c] for c in mentioned if ids[c] != names[c]}
    return entry, labels
