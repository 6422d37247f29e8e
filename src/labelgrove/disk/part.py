"""What a component is made of when it goes to disk: settings and arrays, never Python objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt


@dataclass(frozen=True)
class Part:
    """JSON-able ``config`` and named ``arrays``; ``state()`` makes one, ``from_state()`` reads it.

    >>> Part({"k": 5}).arrays
    {}
    """

    config: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
