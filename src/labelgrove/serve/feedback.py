"""Keeps what people say about suggestions: one line of JSON per text, in a file per model.

The file is only ever appended to. A line is written as a whole under a lock that all worker
processes share, and is on the disk before the client gets its answer. No thread waits for the lock:
other routes need the threads. A line that a crash cut off
stays alone: the next one begins a new line, and readers skip what is no JSON
(``methods/updating/feedback.py``).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from labelgrove.disk.atomic import try_lock
from labelgrove.errors import ConfigError
from labelgrove.serve.problems import Problem, as_json

log = logging.getLogger(__name__)
# Seconds to wait for a lock that another program holds, and between two attempts.
LOCK_SECONDS, ATTEMPT_SECONDS = 5.0, 0.01


class FeedbackFile:
    """The feedback about one model; ``megabytes`` is the size at which no more is taken."""

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
