"""What an engine does, and the engine of one machine, which runs everything in this process.

Callers hand out work and never ask where it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from labelgrove.core.callbacks import Callback

Item = TypeVar("Item")
Result = TypeVar("Result")
Ref: TypeAlias = Any  # stands for a value that an engine holds


class Engine(ABC):
    """Runs functions and holds their results.

    Functions are plain ones that can be imported by name: their code does not travel. A
    :data:`Ref` among the arguments of :meth:`call` (not inside a list) reaches the function as its
    value, which it must not change.
    """

    workers: int = 1  # functions that run at the same time
    threads: int | None = None  # that each of them should use; None: all

    @abstractmethod
    def put(self, value: object) -> Ref:
        """Holds a value that several calls share."""

    @abstractmethod
    def call(self, function: Callable[..., object], *arguments: object, gpu: bool = False) -> Ref:
        """Starts ``function(*arguments)``, with a GPU if it can use one and there is one."""

    @abstractmethod
    def split(self, function: Callable[..., object], *arguments: object, parts: int) -> list[Ref]:
        """Like :meth:`call`, for a function that returns a sequence of so many values."""

    @abstractmethod
    def results(self, refs: Sequence[Ref]) -> Iterator[Any]:
        """The values in the order of ``refs``, each as soon as it is there."""

    @abstractmethod
    def stream(
        self,
        make: Callable[[], Callable[[Item], Result]],
        items: Iterable[Item],
        *,
        gpu: bool = False,
    ) -> Iterator[Result]:
        """Gives items to workers that ``make`` makes once each, and yields the results in order.

        For workers that are slow to make, such as those that load a model. With ``gpu``, each has a
        GPU if there are any.
        """

    @abstractmethod
    def together(
        self,
        work: Callable[[Callback], Result],
        *,
        folder: Path,
        device: str,
        threads: int,
        callback: Callback,
    ) -> Result:
        """Runs ``work`` in processes that train one model, and returns what the first one returns.

        Their variables are those that torchrun sets. ``work`` is given a function that sends events
        to ``callback``. If a process is lost, all start again, and ``work`` continues from what it
        had stored. ``folder`` is on a path that all machines share. Closing the engine interrupts
        ``work``.
        """

    def cancel(self, refs: Sequence[Ref]) -> None:
        """Ends calls whose results are not needed any more."""
        return

    def map(
        self, function: Callable[..., object], items: Iterable[object], *shared: object
    ) -> list[Ref]:
        """Starts ``function(item, *shared)`` for each item."""
        return [self.call(function, item, *shared) for item in items]

    def get(self, ref: Ref) -> Any:
        """One value."""
        return next(self.results([ref]))

    def close(self) -> None:
        """Frees what the engine holds."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Held:
    """What a call gave or raised; as with other engines, who asks for it gets the error."""

    result: object
    error: Exception | None = None

    @property
    def value(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class LocalEngine(Engine):
    """Calls functions at once.

    >>> engine = LocalEngine()
    >>> list(engine.results(engine.map(pow, [2, 3], engine.put(2))))
    [4, 9]
    """

    def put(self, value: object) -> Ref:
        return _Held(value)

    def call(self, function: Callable[..., object], *arguments: object, gpu: bool = False) -> Ref:
        try:
            return _Held(function(*(_value(argument) for argument in arguments)))
        except Exception as error:
            return _Held(None, error)

    def split(self, function: Callable[..., object], *arguments: object, parts: int) -> list[Ref]:
        values = self.call(function, *arguments).value
        assert len(values) == parts
        return [_Held(value) for value in values]

    def results(self, refs: Sequence[Ref]) -> Iterator[Any]:
        return (ref.value for ref in refs)

    def stream(
        self,
        make: Callable[[], Callable[[Item], Result]],
        items: Iterable[Item],
        *,
        gpu: bool = False,
    ) -> Iterator[Result]:
        worker = make()
        return (worker(item) for item in items)

    def together(
        self,
        work: Callable[[Callback], Result],
        *,
        folder: Path,
        device: str,
        threads: int,
        callback: Callback,
    ) -> Result:
        return work(callback)


def _value(argument: object) -> object:
    return argument.value if isinstance(argument, _Held) else argument
