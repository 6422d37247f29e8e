"""What a computation may use: set once, where a caller comes in, and read where work is done.

Methods of a model, commands and public classes are such doors. Between them and the kernels, no
function passes threads or devices on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar


@dataclass(frozen=True)
class Resources:
    """Threads (0 and -1 are all cores) and the device of networks; None is the caller's choice."""

    threads: int | None = None
    device: str | None = None


P = ParamSpec("P")
R = TypeVar("R")

_NOTHING = Resources()
_CURRENT: ContextVar[Resources] = ContextVar("resources", default=_NOTHING)


def current() -> Resources:
    """What the code that runs now may use."""
    return _CURRENT.get()


class using:
    """Sets what everything inside may use. None leaves it as it is.

    A thread starts without it: run its work in a copy of the context (``contextvars``). It is a
    class because every prediction enters it twice, and generators cost a text 5 to 10 percent.
    """

    __slots__ = ("_device", "_threads", "_token")

    def __init__(self, *, threads: int | None = None, device: str | None = None) -> None:
        self._threads, self._device = threads, device
        self._token: Token[Resources] | None = None

    def __enter__(self) -> None:
        threads, device = self._threads, self._device
        if threads is None and device is None:
            return
        outer = _CURRENT.get()
        threads = outer.threads if threads is None else threads
        self._token = _CURRENT.set(Resources(threads, outer.device if device is None else device))

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)


def with_own_resources(function: Callable[P, R]) -> Callable[P, R]:
    """A door: the function may use what the settings of its first argument, a model, say."""

    @wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        model: Any = arguments[0]
        with using(threads=model.n_jobs, device=model.device):
            return function(*arguments, **options)

    return run


def thread_count() -> int:
    """The threads of a kernel; 0 is all cores."""
    return max(0, _CURRENT.get().threads or 0)
