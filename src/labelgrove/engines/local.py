"""The engine of one machine: everything runs in this process, one piece after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelgrove.core.callbacks import Callback
from labelgrove.engines.engine import Engine, Item, Ref, Result


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
