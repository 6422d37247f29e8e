"""The limits of the service and its batches, as one group of parameters."""

from __future__ import annotations

from dataclasses import dataclass

from labelgrove.core.params import Params, param
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
