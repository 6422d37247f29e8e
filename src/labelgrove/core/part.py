"""A component as it goes to disk: settings and arrays, never Python objects."""

from __future__ import annotations

from dataclasses import dataclass, field

from labelgrove.core.arrays import Array
from labelgrove.core.jsonio import JsonObject


@dataclass(frozen=True)
class Part:
    """JSON-able ``config`` and named ``arrays``: what ``state()`` and ``from_state()`` exchange."""

    config: JsonObject = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
