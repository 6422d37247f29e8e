"""The models of a service by name, and what the command line says of each."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from labelgrove.disk.bundle import MANIFEST
from labelgrove.errors import ConfigError

# Names are part of addresses, of file names and of metrics.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def named_models(given: Sequence[str]) -> dict[str, str]:
    """Models by name. Each is NAME=MODEL, a model, or a folder of model folders.

    A model without a name is called as its folder is.

    >>> named_models(["models/english", "fi=models/finnish"])
    {'english': 'models/english', 'fi': 'models/finnish'}
    """
    models: dict[str, str] = {}
    for value in given:
        for name, model in _named(value):
            if name in models:
                raise ConfigError(
                    f"two models are called {name!r}; give them names: serve a={models[name]} "
                    f"b={model}"
                )
            models[name] = model
    return models


def _named(value: str) -> list[tuple[str, str]]:
    name, equals, model = value.partition("=")
    if equals and not Path(value).exists():
        if NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{value}: {name!r} cannot be a model's name; use letters, digits, '.', '_' and "
                "'-', at most 64"
            )
        return [(name, model)]
    folder = Path(value)
    if not value.startswith("hub:") and folder.is_dir() and not (folder / MANIFEST).exists():
        inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))
        if inside:
            return [(_name_of(path.name), str(path)) for path in inside]
    # "." and "models/.." have no name of their own.
    last = value.partition("@")[0] if value.startswith("hub:") else str(folder.absolute())
    return [(_name_of(Path(last).name), value)]


def _name_of(folder: str) -> str:
    """A folder's name, as far as it can be part of an address."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder).lstrip("-._")[:64] or "model"


def files_by_model(given: Sequence[str], names: Collection[str], flag: str) -> dict[str, Path]:
    """The file of each model: NAME=FILE, or FILE if there is only one model.

    >>> files_by_model(["a=x.html"], ["a", "b"], "--report")
    {'a': PosixPath('x.html')}
    """
    files: dict[str, Path] = {}
    for value in given:
        name, equals, file = value.partition("=")
        if equals and name in names:
            files[name] = Path(file)
        elif len(names) == 1:
            files[next(iter(names))] = Path(value)
        else:
            raise ConfigError(
                f"{flag} {value}: say for which model: {flag} NAME=FILE, where NAME is "
                f"{listed(names)}"
            )
    return files


def listed(names: Collection[str], most: int = 20) -> str:
    """Names for a sentence.

    >>> listed(["a", "b", "c"])
    'a, b or c'
    """
    shown = list(names)[:most]
    if len(names) > most:
        return f"{', '.join(shown)} or {len(names) - most} others"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
