"""What the user of ``labelgrove serve`` says: models and their files by name, and limits."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from labelgrove.core.params import Params, param
from labelgrove.disk.bundle import MANIFEST
from labelgrove.errors import ConfigError


@dataclass
class ServeParams(Params):
    """Limits and batches of the service; the OpenAPI text states the limits."""

    max_body: int = param(4 << 20, ge=64, help="bytes of a request")
    max_texts: int = param(256, ge=1, help="texts of a request")
    max_text_chars: int = param(200_000, ge=1, help="characters of a text")
    max_k: int = param(100, ge=1, help="labels per text that may be asked for")
    max_labels: int = param(10_000, ge=1, help="entries of an allow or deny list")
    max_explained: int = param(50, ge=1, help="labels, over all texts of a request, to explain")
    max_seconds: float = param(30.0, gt=0, help="seconds before the service gives up a request")
    max_requests: int = param(512, ge=1, help="open requests; more are refused with 429")
    max_bodies: int = param(
        256 << 20, ge=64, help="bytes of all open requests; more are refused with 429"
    )
    max_waiting: int = param(1024, ge=1, help="waiting texts; more are refused with 429")
    max_headers: int = param(100, ge=1, help="headers of a request")
    max_header_bytes: int = param(
        32 << 10, ge=256, help="bytes of a request's address and headers together"
    )
    max_header_seconds: float = param(10.0, gt=0, help="seconds in which headers have to arrive")
    max_connections: int = param(
        1024, ge=1, help="open connections of a process; more are refused with 503"
    )
    max_connections_per_address: int = param(
        256, ge=1, help="open connections of one address; a proxy counts as one address"
    )
    batch_texts: int = param(64, ge=1, help="texts at which a batch starts at once")
    batch_ms: float = param(0.0, ge=0, help="milliseconds that an idle model waits for more texts")
    reload_seconds: float = param(
        2.0, ge=0, help="seconds between checks for a new model in the folder; 0: never"
    )
    copy_mb: float = param(
        512.0,
        ge=0,
        help="models up to this many megabytes are served from a private copy; 0: none are",
    )
    max_feedback_mb: float = param(
        100.0, gt=0, help="megabytes of the file with feedback; more is refused with 507"
    )
    access_log: bool = param(False, help="write a line per request to standard output")
    page: bool = param(True, help="serve a page to try the model in a browser")
    ticked: bool = param(False, help="the page ticks suggestions that reach the threshold")

    def checked(self) -> ServeParams:
        """These parameters, validated one by one and together."""
        self.validate()
        for name, other in (("max_waiting", "max_texts"), ("max_bodies", "max_body")):
            value, least = getattr(self, name), getattr(self, other)
            if value < least:
                raise ConfigError(f"{name}: must be at least {other} ({least}), got {value}")
        return self


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
