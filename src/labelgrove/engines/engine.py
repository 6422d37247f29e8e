"""What an engine does. This one runs everything in its own process, one call after another.

Callers hand out work and never ask where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar

from labelgrove.core.callbacks import Callback

Item = TypeVar("Item")
Result = TypeVar("Result")
Ref: TypeAlias = Any  # stands for a value that an engine holds


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


class Engine:
    """Runs functions and holds their results; other engines do so elsewhere.

    Functions are plain ones that can be imported by name: their code does not travel. A
    :data:`Ref` among the arguments of :meth:`call` (not inside a list) reaches the function as its
    value, which it must not change.

    >>> engine = Engine()
    >>> list(engine.results(engine.map(pow, [2, 3], engine.put(2))))
    [4, 9]
    """

    workers: int = 1  # functions that run at the same time
    threads: int | None = None  # that each of them should use; None: all

    def put(self, value: object) -> Ref:
        """Holds a value that several calls share."""
        return _Held(value)

    def call(self, function: Callable[..., object], *arguments: object, gpu: bool = False) -> Ref:
        """Starts ``function(*arguments)``, with a GPU if it can use one and there is one."""
        try:
            values = [each.value if isinstance(each, _Held) else each for each in arguments]
            return _Held(function(*values))
        except Exception as error:
            return _Held(None, error)

    def split(self, function: Callable[..., object], *arguments: object, parts: int) -> list[Ref]:
        """Like :meth:`call`, for a function that returns a sequence of so many values."""
        values = self.call(function, *arguments).value
        assert len(values) == parts
        return [_Held(value) for value in values]

    def results(self, refs: Sequence[Ref]) -> Iterator[Any]:
        """The values in the order of ``refs``, each as soon as it is there."""
        return (ref.value for ref in refs)

    def stream(
        self,
        make: Callable[[], Callable[[Item], Result]],
        items: Iterable[Item],
        *,
        gpu: bool = False,
    ) -> Iterator[Result]:
        """Gives items to workers that ``make`` makes once each, and yields the results in order."""
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
        """Runs ``work`` in processes that train one model, and returns what the first one returns.

        ``work`` is given a function that sends events to ``callback``. If a process is lost, all
        start again, and ``work`` continues from what it had stored in ``folder``, which all
        machines share. Closing the engine interrupts ``work``.
        """
        return work(callback)

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
