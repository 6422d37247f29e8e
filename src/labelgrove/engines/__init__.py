"""Where functions run: in this process, or as tasks of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from labelgrove.engines.engine import Engine
from labelgrove.errors import ConfigError

__all__ = ["ENGINES", "Engine", "engine_for", "open_engine"]

ENGINES = ("local", "ray")


def open_engine(name: str, *, address: str | None = None, workers: int | None = None) -> Engine:
    """The engine of this name; close it, or use it as a context manager.

    ``address`` is that of a running Ray cluster ("auto": the one of this machine); without it, Ray
    starts on this machine with ``workers`` processes, by default one per core.
    """
    if name not in ENGINES:
        raise ConfigError(f"engine: must be one of {', '.join(ENGINES)}, got {name!r}")
    if name == "ray":
        from labelgrove.engines.ray import RayEngine

        return RayEngine(address=address, workers=workers)
    if address is not None or workers is not None:
        raise ConfigError("address, workers: are for the engine ray; the local one has none")
    return Engine()


@contextmanager
def engine_for(engine: Engine | str | None) -> Iterator[Engine | None]:
    """An engine that the caller has opened, or one that is open as long as the block runs."""
    if isinstance(engine, str):
        with open_engine(engine) as opened:
            yield opened
    else:
        yield engine
