"""What can happen to a process: it is killed, its disk fails, memory or threads run out.

Every call that changes the disk is counted: opening for writing, writing, syncing, renaming,
deleting, making folders and links. Files get a raw layer of ours, below Python's buffers, so that
each count is one system call.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import io
import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMES = ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink", "remove", "symlink", "link")
_FREES = ("rmdir", "unlink", "remove")  # what works on a full disk
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Those that some test inflicts; "none" only counts.
KINDS = ("none", "kill", "full", "no space once", "broken", "broken sync", "short")


class _Counter:
    """Counts the calls of this process and strikes at the n-th."""

    def __init__(self, report: int, kind: str, at: int) -> None:
        assert kind in KINDS
        self.report, self.kind, self.at = report, kind, at
        self.number = 0
        self.write = os.write

    def meet(self, name: str, about: Any) -> bool:
        """Called before each call; True if a write is to be cut short."""
        if self.kind == "broken sync" and name != "fsync":
            return False
        if self.kind == "short" and name != "write":
            return False
        if self.kind in ("full", "no space once") and name in _FREES:
            return False
        self.number += 1
        self.write(self.report, json.dumps([name, str(about)]).encode() + b"\n")
        if self.kind == "full" and self.number >= self.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *_file(name, about))
        if self.number != self.at:
            return False
        if self.kind in ("kill", "short"):
            if self.kind == "kill" and name != "write":
                os.kill(os.getpid(), signal.SIGKILL)
            return True
        if self.kind == "no space once":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *_file(name, about))
        if self.kind in ("broken", "broken sync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), *_file(name, about))
        return False

    def wrap(self, name: str, real: Any) -> Any:
        def call(first: Any, *rest: Any, **named: Any) -> Any:
            self.meet(name, first)
            return real(first, *rest, **named)

        return call

    def part(self, data: Any) -> memoryview:
        """The bytes that a write gets down to the disk."""
        content = memoryview(data).cast("B")
        return content[: max(1, len(content) // 2)] if self.meet("write", len(content)) else content

    def wrote(self) -> None:
        if self.kind == "kill" and self.number == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def _file(name: str, about: Any) -> list[str]:
    """A system call on a path names it in its error, one on a descriptor does not."""
    return [] if name in ("write", "fsync", "ftruncate") else [str(about)]


@contextlib.contextmanager
def inflicted(report: int, *, kind: str | None = None, at: int = 0) -> Iterator[None]:
    """Patches what changes the disk, for good: the process ends afterwards."""
    if kind is None:
        yield
        return
    counter = _Counter(report, kind, at)

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            count = super().write(counter.part(data))
            counter.wrote()
            return count

    real_open, real_os_open, real_write = io.open, os.open, os.write

    def file_open(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return real_open(file, mode, buffering, *rest, **named)
        counter.meet("open", file)
        raw = Raw(file, mode.replace("b", "").replace("t", ""))
        binary: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return binary if "b" in mode else io.TextIOWrapper(binary, *rest, **named)

    def os_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & _WRITING:
            counter.meet("open", path)
        return real_os_open(path, flags, *rest, **named)

    def os_write(descriptor: int, data: Any) -> int:
        count = real_write(descriptor, counter.part(data))
        counter.wrote()
        return count

    from labelgrove.disk import atomic

    for name in _NAMES:
        setattr(os, name, counter.wrap(name, getattr(os, name)))
    os.ftruncate = counter.wrap("ftruncate", os.ftruncate)
    os.open, os.write = os_open, os_write
    io.open = builtins.open = file_open
    atomic._exchange = counter.wrap("exchange", atomic._exchange)
    yield


def limit(*, memory: int | None = None, threads: bool = True) -> None:
    """Allows ``memory`` more bytes of address space, and no new thread without ``threads``."""
    if memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if not threads:
        # A limit on processes does not bind root. Nobody has room for a stack of this size.
        library = ctypes.CDLL(None)
        attributes = ctypes.create_string_buffer(256)
        library.pthread_attr_init(attributes)
        assert library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 60)) == 0
        assert library.pthread_setattr_default_np(attributes) == 0
