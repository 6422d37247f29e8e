"""One exception tree: every error that labelgrove raises on purpose is a :class:`LabelgroveError`.

Messages name the file, line, field or argument and say what to do. The command line prints them
without a traceback.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any


class LabelgroveError(Exception):
    """Base class of all errors of labelgrove."""


class LabelgroveWarning(UserWarning):
    """Something that is probably not what the user means, or that makes figures misleading."""


def warn(message: str) -> None:
    """Warns the code that called labelgrove; the command line prints the sentence as a note."""
    import warnings  # needed seldom

    here = str(Path(__file__).parent)
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(here):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, LabelgroveWarning, stacklevel=level)


class ConfigError(LabelgroveError, ValueError):
    """A parameter, config file or flag is wrong."""


class ArgumentError(ConfigError, TypeError):
    """A constructor has no such argument."""


class DataError(LabelgroveError, ValueError):
    """A corpus, matrix or label is wrong. The message says where, if that is known.

    >>> str(DataError("not valid JSON", file="train.jsonl", line=3))
    'train.jsonl, line 3: not valid JSON'
    """

    def __init__(
        self, message: str, *, file: str | Path | None = None, line: int | None = None
    ) -> None:
        self.file = None if file is None else str(file)
        self.line = line
        where = [] if file is None else [str(file)]
        if line is not None:
            where.append(f"line {line}")
        super().__init__(f"{', '.join(where)}: {message}" if where else message)


class ModelFormatError(LabelgroveError):
    """A model folder is damaged, incomplete, unsafe or newer than this library."""


class StorageError(LabelgroveError, OSError):
    """Something could not be written: no space, no permission, or a disk that fails."""


class ResourceError(LabelgroveError):
    """The work needs more memory than allowed. Raised before the work starts."""


class UnsupportedError(LabelgroveError, NotImplementedError):
    """A method does not support this feature. The message says what to do instead."""


class ServiceError(LabelgroveError, ConnectionError):
    """A service refused a request, or could not be reached (then ``status`` is 0).

    ``code`` is the service's word for what went wrong; docs/service.md lists them.
    """

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after = retry_after


class MissingExtraError(LabelgroveError, ImportError):
    """An optional dependency is not installed.

    The advice names packages, because labelgrove itself may have come from a checkout or a wheel.

    >>> print(MissingExtraError("data", "reading Parquet"))
    reading Parquet needs the extra `data`: pip install 'pyarrow>=20'
    """

    def __init__(self, extra: str, what: str) -> None:
        self.extra = extra
        self.what = what
        names = packages_of(extra) or [f"labelgrove[{extra}]"]  # metadata may be older than code
        packages = " ".join(f"'{name}'" for name in names)
        super().__init__(f"{what} needs the extra `{extra}`: pip install {packages}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes pickle errors; the default would call __init__ with the message alone.
        return type(self), (self.extra, self.what)


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Makes a MissingExtraError of a package that cannot be imported inside."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(extra, what) from error


class MissingPackageError(LabelgroveError, ImportError):
    """A package that no extra has, because users bring their own, is not installed.

    >>> print(MissingPackageError("polars", "to_frame"))
    to_frame needs polars: pip install polars
    """

    def __init__(self, package: str, what: str) -> None:
        self.package = package
        self.what = what
        super().__init__(f"{what} needs {package}: pip install {package}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.package, self.what)


@contextmanager
def needing_torch(what: str) -> Iterator[None]:
    """Imports of modules without which ``what`` cannot work; the error names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers", "tokenizers"):
            raise
        raise MissingExtraError("torch", what) from error


def packages_of(extra: str) -> list[str]:
    """What pip installs for an extra of labelgrove, as its metadata says."""
    import importlib.metadata  # slow, and needed for errors alone

    try:
        lines = importlib.metadata.requires("labelgrove") or ()
    except importlib.metadata.PackageNotFoundError:  # sources on the path, not installed
        return []
    packages: list[str] = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        if re.search(rf"""extra == ['"]{extra}['"]""", marker) is None:
            continue
        others = re.fullmatch(r"labelgrove\[(.+)\]", requirement.strip())
        names = [] if others is None else others[1].split(",")
        packages += [package for name in names for package in packages_of(name)] or [
            requirement.strip()
        ]
    return list(dict.fromkeys(packages))


if TYPE_CHECKING:

    class NotFittedError(LabelgroveError, ValueError, AttributeError):
        """A model must be fitted or loaded first."""


def __getattr__(name: str) -> Any:
    # NotFittedError is also scikit-learn's, so that its tools recognise it. Importing scikit-learn
    # takes a second, so the class is made on first use.
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import NotFittedError as SklearnNotFittedError

    class NotFittedError(LabelgroveError, SklearnNotFittedError):  # type: ignore[misc]
        """A model must be fitted or loaded first."""

    NotFittedError.__module__ = __name__
    NotFittedError.__qualname__ = name
    globals()[name] = NotFittedError
    return NotFittedError
