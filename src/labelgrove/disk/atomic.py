"""Folders that appear whole or not at all, and lock files.

A folder is written under another name, synced, then renamed.

A killed writer leaves a sibling ``.NAME.labelgrove-tmp-XXXX``. Nothing reads such a folder, and the
next write to NAME removes it. A writer locks its temporary folder while its process lives, so that
other processes leave the folder alone.

If the system cannot exchange two names in one step, a replaced folder is first renamed to
``.NAME.labelgrove-old-XXXX``. If the writer is killed just then, the next write puts it back.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import platform
import shutil
import sys
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from labelgrove.core.jsonio import JsonObject
from labelgrove.core.storing import storing
from labelgrove.errors import ConfigError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_TEMPORARY = ".labelgrove-tmp-"
_ASIDE = ".labelgrove-old-"
PARTIAL = ".partial"  # the end of the name of a file that is being written


def write_folder(path: str | Path, write: Callable[[Path], None], *, replace: bool = False) -> None:
    """Makes the folder ``path`` from what ``write(temporary_folder)`` puts there.

    What exists already is an error unless ``replace``: the caller has checked that it may go.
    """
    # A link to a folder stays a link; its target is replaced.
    target = Path(os.path.realpath(path))
    clean_up(target)
    if not replace and occupied(target):
        raise ConfigError(f"{path}: exists already; choose another folder or pass overwrite=True")
    with storing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _new_temporary(target) as temporary:
            write(temporary)
            for folder, _, _ in os.walk(temporary):
                sync(Path(folder))
            _move_into_place(temporary, target, replace=replace)
            sync(target.parent)


def remove_folder(path: Path) -> None:
    """Deletes a folder so that a kill on the way leaves nothing under its name."""
    temporary = _temporary(path)
    try:
        path.rename(temporary)
    except OSError:  # Windows, while a file in it is open
        temporary = path
    with storing(path, "deleted"):
        shutil.rmtree(temporary)


@contextlib.contextmanager
def _new_temporary(target: Path) -> Iterator[Path]:
    """A locked folder beside ``target``; in the end, whatever has its name is deleted."""
    while True:
        temporary = _temporary(target)
        temporary.mkdir()
        with _locked(temporary) as ours:
            # Before the lock, another process may take it for abandoned and delete it.
            if ours is False or not temporary.is_dir():
                continue
            try:
                yield temporary
            finally:
                # After an exchange, the temporary name is that of the replaced folder.
                shutil.rmtree(temporary, ignore_errors=True)
            return


def _temporary(target: Path) -> Path:
    return target.parent / f".{target.name}{_TEMPORARY}{uuid.uuid4().hex[:12]}"


def occupied(path: Path) -> bool:
    """Whether something other than an empty folder is there."""
    return os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))


def clean_up(target: Path) -> None:
    """Removes what killed writes to ``target`` left beside it; puts back a folder moved aside."""
    for old in leftovers(target, _ASIDE):
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(target)
    for temporary in leftovers(target):
        with _locked(temporary) as ours:
            if ours:
                shutil.rmtree(temporary, ignore_errors=True)


def clean_up_inside(folder: Path) -> None:
    """Removes every abandoned temporary folder directly inside ``folder``, whatever its target."""
    names = (p.name[1:].partition(_TEMPORARY) for p in folder.glob(f".*{_TEMPORARY}*"))
    for target in {name for name, _, _ in names}:
        clean_up(folder / target)


def leftovers(target: Path, mark: str = _TEMPORARY) -> list[Path]:
    """Temporary folders of writes to ``target``, abandoned or in progress."""
    if not target.parent.is_dir():
        return []
    start = f".{target.name}{mark}"
    siblings = (p for p in target.parent.iterdir() if p.name.startswith(start))
    return sorted(p for p in siblings if p.is_dir() and not p.is_symlink())


def write_file(path: Path, content: bytes) -> None:
    """Writes a new small file and syncs it to disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Writes a small file, whether or not it exists, in one step."""
    with storing(path), replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file to write that appears under its name, synced to disk, when it is complete."""
    for abandoned in target.parent.glob(f".{glob.escape(target.name)}.*{PARTIAL}"):
        # A process that still writes it has locked it.
        with contextlib.suppress(OSError), abandoned.open("rb") as content:
            if sys.platform != "win32" and try_lock(content.fileno()):
                abandoned.unlink()
    with _new_partial(target) as held:
        partial = Path(held.name)
        try:
            with partial.open("wb") as file:
                yield file
            os.fsync(held.fileno())
            if sys.platform == "win32":
                held.close()
            partial.replace(target)
        except BaseException:
            held.close()
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
    sync(target.parent)


def _new_partial(target: Path) -> IO[bytes]:
    """A new file beside ``target``, locked where the system can while it is open."""
    while True:
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}{PARTIAL}")
        held = partial.open("xb")
        # Before the lock, another process may take it for abandoned and delete it.
        if sys.platform == "win32" or (try_lock(held.fileno()) is not False and partial.exists()):
            return held
        held.close()


def sync(folder: Path) -> None:
    """Syncs a folder's list of names to disk, if the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool | None]:
    """Locks a folder: False if another process has locked or deleted it, None if locks fail."""
    if sys.platform == "win32":
        yield True
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def _move_into_place(temporary: Path, target: Path, *, replace: bool) -> None:
    if not occupied(target):
        try:
            if target.is_dir():
                target.rmdir()
            temporary.rename(target)
            return
        except OSError:
            if not occupied(target):  # otherwise another process was quicker
                raise
    if not replace:
        raise ConfigError(f"{target}: appeared while it was being written; choose another folder")
    if not _exchange(temporary, target):
        # The system has no exchange: between these two steps the old folder has another name.
        old = temporary.with_name(temporary.name.replace(_TEMPORARY, _ASIDE))
        target.rename(old)
        try:
            temporary.rename(target)
        except BaseException:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(first: Path, second: Path) -> bool:
    """Exchanges two names in one step, so that neither is ever missing."""
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    result = renameat2(here, os.fsencode(first), here, os.fsencode(second), exchange)
    return bool(result == 0)


# Why not the package filelock: it does not record who holds the lock, which our messages say.
class FileLock:
    """A lock file that two processes cannot hold at once; ``taken`` is whether this one does.

    The system releases the lock when its holder ends, for whatever reason. A file left behind is
    only a note of who held it (``previous``).
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
