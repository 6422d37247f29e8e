"""Errors of the disk, told about the path that the user knows."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from labelgrove.errors import LabelgroveError, StorageError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})  # a disk, or what a user may have of it


@contextmanager
def storing(path: str | os.PathLike[str], verb: str = "written") -> Iterator[None]:
    """Errors of the disk inside become a StorageError about ``path``.

    The system's own messages name no file, or a temporary one.
    """
    try:
        yield
    except LabelgroveError:
        raise
    except OSError as error:
        if error.errno is None:  # such as a server's answer to a download
            raise
        advice = "; make room there, then start again" if error.errno in FULL else ""
        raise StorageError(f"{path}: cannot be {verb}: {error.strerror}{advice}") from error
