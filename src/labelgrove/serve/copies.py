"""A model's files, protected from being overwritten while they are mapped.

Reading a mapped file that somebody has shortened ends the process (SIGBUS), and bytes that change
in place give wrong answers. Folders that are replaced as a whole, as labelgrove does, are harmless:
the old files live on until nobody uses them. Against copies onto the old files, small models are
served from a private copy; for large ones the service checks before and after each batch that the
files are the ones it opened, which notices the change but cannot prevent a crash in mid-batch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path

from labelgrove.core.jsonio import JsonObject
from labelgrove.disk.atomic import FileLock
from labelgrove.disk.bundle import MANIFEST, check_files, regular_size

log = logging.getLogger(__name__)
PREFIX = "labelgrove-serve-"
OWNER = "owner.lock"


class Copies:
    """Private copies of models in one folder, which the workers of a service share.

    ``megabytes`` is the size of the largest model that is copied.
    """

    def __init__(self, folder: str | Path, megabytes: float) -> None:
        self.folder = Path(folder)
        self.limit = int(megabytes * 1e6)

    def make(self, model: Path, manifest: JsonObject) -> Path | None:
        """A copy of the files in the manifest, or None: the model has to be mapped in place.

        Files of other sizes than the manifest states are refused. The copy is as good as the folder
        was at that time; loading checks it again.
        """
        # Windows does not let anybody shorten or replace a mapped file.
        if not self.limit or sys.platform == "win32":
            return None
        names = [MANIFEST, *manifest["files"]]
        check_files(model, manifest, "none")  # before a byte is copied
        if sum(regular_size(model, name) for name in names) > self.limit:
            return None
        copy = self.folder / str(manifest["checksum"])[:32]
        with self._locked():
            if copy.is_dir():
                return copy
            beginning = Path(tempfile.mkdtemp(dir=self.folder))
            try:
                for name in names:
                    (beginning / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(model / name, beginning / name)
                return beginning.replace(copy)
            except OSError as error:
                shutil.rmtree(beginning, ignore_errors=True)
                advice = "so it is mapped in place; do not overwrite its files while it is served"
                why = f"cannot be copied to {self.folder} ({error.strerror}), {advice}"
                log.warning("%s: %s", model, why)
                return None

    def remove(self, copy: Path) -> None:
        """Removes a copy; processes that have mapped it keep what they have."""
        with self._locked():
            shutil.rmtree(copy, ignore_errors=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Waits for other workers."""
        lock = FileLock(self.folder / "copying.lock", wait=True)
        try:
            yield
        finally:
            lock.release()


@contextlib.contextmanager
def own_folder() -> Iterator[Path | None]:
    """A temporary folder of this service, or None if there is no place for one.

    Removes the folders of services that were killed.
    """
    try:
        parent = Path(tempfile.gettempdir())
    except OSError:
        yield None
        return
    user = os.getuid() if sys.platform != "win32" else 0
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            mine = folder.lstat().st_uid == user and not folder.is_symlink()
            # Without its lock file it may be another service that is only just starting.
            if mine and (folder / OWNER).is_file():
                attempt = FileLock(folder / OWNER)
                taken = attempt.taken
                attempt.release()
                if taken:
                    shutil.rmtree(folder)
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        lock = FileLock(Path(name) / OWNER)
        try:
            yield Path(name)
        finally:
            lock.release()


def read_plain(file: Path, *, follow: bool) -> bytes | None:
    """The bytes of a plain file; None if it is none or a link not to be followed.

    In somebody else's model folder, a link could lead to any file of this machine.
    """
    if not follow and file.is_symlink():  # for systems without O_NOFOLLOW
        return None
    try:
        # Not blocking: a pipe in its place would stop the thread.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        opened = os.open(file, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        return None
    with os.fdopen(opened, "rb") as stream:
        return stream.read()


class OpenFiles:
    """Files of a model that is mapped in place; ``changed`` when somebody writes to them.

    They are held open: a new folder in the place of the old one does not change these files.
    """

    def __init__(self, model: Path, names: Iterable[str]) -> None:
        self._descriptors: list[int] = []
        for name in names:
            with contextlib.suppress(OSError):  # loading says what is missing
                self._descriptors.append(os.open(model / name, os.O_RDONLY))
                weakref.finalize(self, os.close, self._descriptors[-1])
        self._states = self._now()

    def changed(self) -> bool:
        """Whether a file has another size or time than when it was opened."""
        return self._now() != self._states

    def _now(self) -> list[tuple[int, int]]:
        states = map(os.fstat, self._descriptors)
        return [(state.st_size, state.st_mtime_ns) for state in states]
