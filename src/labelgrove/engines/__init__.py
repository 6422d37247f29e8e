"""Where functions run: in this process, or as tasks of a Ray cluster."""

from __future__ import annotations

from labelgrove.engines.engine import Engine
from labelgrove.engines.local import LocalEngine
from labelgrove.errors import ConfigError

__all__ = ["ENGINES", "Engine", "LocalEngine", "open_engine"]

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
    return LocalEngine()
