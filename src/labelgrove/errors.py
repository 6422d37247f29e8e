"""One exception tree: every error that labelgrove raises on purpose is a :class:`LabelgroveError`.

Messages name the file, line, field or argument and say what to do. The command line prints them
without a traceback.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any


class LabelgroveError(Exception):
    """Base class of all errors of labelgrove."""


class ConfigError(LabelgroveError, ValueError):
    """A parameter, config file or flag is wrong."""


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


class ResourceError(LabelgroveError):
    """The work needs more memory than allowed. Raised before the work starts."""


class UnsupportedError(LabelgroveError, NotImplementedError):
    """A method does not support this feature. The message says what to do instead."""


class MissingExtraError(LabelgroveError, ImportError):
    """An optional dependency is not installed.

    >>> print(MissingExtraError("data", "reading Parquet"))
    reading Parquet needs an optional dependency: pip install 'labelgrove[data]'
    """

    def __init__(self, extra: str, what: str) -> None:
        self.extra = extra
        self.what = what
        super().__init__(f"{what} needs an optional dependency: pip install 'labelgrove[{extra}]'")

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes pickle errors; the default would call __init__ with the message alone.
        return type(self), (self.extra, self.what)


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
