"""Errors of the disk, told about the path that the user knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from labelgrove.errors import LabelgroveError, StorageError


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
        raise StorageError(
            f"{os.fspath(path)}: cannot be {verb}: {error.strerror or error}"
        ) from error
