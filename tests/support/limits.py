"""A table of a group's settings: its defaults, and where its values end."""

from __future__ import annotations

from typing import Any

import pytest

from labelgrove.core.params import Params
from labelgrove.errors import ConfigError


def check_settings(group: type[Params], table: dict[str, tuple[Any, Any, Any]]) -> None:
    """Each name has its default, a value at a limit, and the next one beyond, which is refused."""
    for name, (default, accepted, refused) in table.items():
        assert getattr(group(), name) == default, name
        group(**{name: accepted}).validate()
        with pytest.raises(ConfigError, match=rf"{name}: must be (at|greater)"):
            group(**{name: refused}).validate()
