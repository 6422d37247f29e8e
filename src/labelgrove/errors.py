"""One exception tree: whatever goes wrong on purpose is a :class:`LabelgroveError`.

Messages name the file, line, field or argument and say what to do about it; the command line prints
them without a traceback.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any


class LabelgroveError(Exception):
    """Base of every error that labelgrove raises on purpose.

    >>> issubclass(DataError, LabelgroveError)
    True
    """


class ConfigError(LabelgroveError, ValueError):
    """A parameter, config file or flag is wrong.

    >>> str(ConfigError("ranker.C: must be > 0, got -1"))
    'ranker.C: must be > 0, got -1'
    """


class DataError(LabelgroveError, ValueError):
    """A corpus, matrix or label is wrong; says where when it is known.

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
    """The work does not fit the memory it was allowed; raised before it starts."""


class UnsupportedError(LabelgroveError, NotImplementedError):
    """A method does not offer what it was asked for; says what to do instead.

    >>> issubclass(UnsupportedError, NotImplementedError)
    True
    """


class MissingExtraError(LabelgroveError, ImportError):
    """An optional dependency is needed and not installed.

    >>> print(MissingExtraError("data", "reading Parquet"))
    reading Parquet needs an optional dependency: pip install 'labelgrove[data]'
    """

    def __init__(self, extra: str, what: str) -> None:
        self.extra = extra
        self.what = what
        super().__init__(f"{what} needs an optional dependency: pip install 'labelgrove[{extra}]'")

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes send errors home; without this the pool would break instead.
        return type(self), (self.extra, self.what)


if TYPE_CHECKING:

    class NotFittedError(LabelgroveError, ValueError, AttributeError):
        """A model was asked to predict before it was fitted or loaded."""


def __getattr__(name: str) -> Any:
    # Our NotFittedError is also scikit-learn's, so that its tools recognise it. Importing
    # scikit-learn takes a second, so the class is made when somebody first asks for it.
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn.exceptions import NotFittedError as SklearnNotFittedError

    class NotFittedError(LabelgroveError, SklearnNotFittedError):  # type: ignore[misc]
        """A model was asked to predict before it was fitted or loaded."""

    NotFittedError.__module__ = __name__
    NotFittedError.__qualname__ = name
    globals()[name] = NotFittedError
    return NotFittedError
