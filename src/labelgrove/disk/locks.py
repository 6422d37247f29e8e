"""A lock file that two processes cannot hold at once and that a dead process does not hold.

Why not the package filelock: it does not record who holds or held the lock, which our messages say.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
import weakref
from pathlib import Path

from labelgrove.core.jsonio import JsonObject

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class FileLock:
    """Tries to take the lock when made; ``taken`` is whether it did, ``previous`` the last holder.

    The operating system releases the lock when its holder ends, for whatever reason. A lock file
    left behind is only a note of who held it (``previous``). With ``wait``, the lock is taken as
    soon as it is free.
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        # Forked children share the descriptor, so the finalizer must only close it.
        self._close = weakref.finalize(self, os.close, self._descriptor)
        self.taken = bool(try_lock(self._descriptor, wait=wait))
        self.previous: JsonObject | None = None
        with contextlib.suppress(OSError, ValueError):
            note = json.loads(path.read_text())
            self.previous = note if isinstance(note, dict) else None
        if self.taken:
            self.note()

    def note(self, **more: object) -> None:
        """Writes who holds the lock, and more about the holder."""
        self._note({"pid": os.getpid(), "host": platform.node(), "since": time.time()} | more)

    def release(self) -> None:
        """Releases the lock and clears the note; does nothing when called again."""
        if self._close.alive and self.taken:
            self._note(None)
            _unlock(self._descriptor)
        self.taken = False
        self._close()

    def _note(self, holder: JsonObject | None) -> None:
        with contextlib.suppress(OSError):  # the lock works without a note
            os.ftruncate(self._descriptor, 0)
            if holder is not None:
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                os.write(self._descriptor, json.dumps(holder).encode())


def try_lock(descriptor: int, *, wait: bool = False) -> bool | None:
    """Locks a file while its process lives: False if another has it, None if locks do not work."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # past the note, which stays readable
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return True
    except BlockingIOError:
        return False
    except OSError:
        return None


def _unlock(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        if sys.platform == "win32":
            os.lseek(descriptor, 1 << 20, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
