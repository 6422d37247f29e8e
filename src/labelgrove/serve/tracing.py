"""OpenTelemetry: a span per request, with children for waiting in the queue and for predicting.

Spans are made when a request has ended, from times that were noted on the way. They say which
route and model answered, never a text. Where they go is told by OpenTelemetry's own variables of
the environment (``OTEL_EXPORTER_OTLP_ENDPOINT`` and so on).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labelgrove.core.versions import VERSION
from labelgrove.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

# Asked every few seconds by machines; their spans would drown the others.
UNTRACED = ("/healthz", "/readyz", "/metrics")
LAST_SECONDS = 3.0  # for sending what is left when the service stops
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass
class Trail:
    """What happened to a request on its way; times are those of ``time.perf_counter``."""

    k: int | None = None
    texts: int | None = None
    queued: float | None = None
    started: float | None = None  # the model began
    ended: float | None = None
    batch_texts: int | None = None  # of all requests that the model answered with this one


# That of the request which is being answered; None if nobody traces.
TRAIL: ContextVar[Trail | None] = ContextVar("labelgrove_trail", default=None)


class Tracing:
    """Makes spans and sends them, by default over HTTP to where the environment says."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        name = next(filter(os.environ.get, PROTOCOLS), None)
        if name is not None and os.environ[name] != "http/protobuf":
            raise ConfigError(
                f"{name}={os.environ[name]}: traces are sent as http/protobuf; remove "
                "the variable and give the collector's HTTP port (usually 4318) in "
                "OTEL_EXPORTER_OTLP_ENDPOINT"
            )
        try:
            from opentelemetry import propagate, trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            self._api, self._extract = trace, propagate.extract
            self._exporter = OTLPSpanExporter() if exporter is None else exporter
            self._processor = BatchSpanProcessor(self._exporter)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("opentelemetry"):
                raise
            raise MissingExtraError("trace", "labelgrove serve --trace") from error
        except ValueError as error:  # OpenTelemetry logs most mistakes, and raises some
            raise ConfigError(f"a variable OTEL_... has a wrong value: {error}") from error
        # What the operator says of the service goes before what we say.
        given = dict(OTELResourceDetector().detect().attributes)
        about = {"service.name": "labelgrove", "service.version": VERSION} | given
        provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        self._tracer = provider.get_tracer("labelgrove", VERSION)

    def write(
        self,
        scope: Mapping[str, Any],
        trail: Trail,
        *,
        id: bytes,
        route: str,
        model: str,
        status: int | None,
        started: float,
    ) -> None:
        """Makes the spans of a request that has ended just now."""
        if scope["path"] in UNTRACED:
            return
        now, now_ns = time.perf_counter(), time.time_ns()

        def nanoseconds(moment: float | None) -> int:
            return now_ns if moment is None else now_ns - round(1e9 * (now - moment))

        failed = status is None or status >= 500
        attributes = {
            "http.request.method": scope["method"],
            "http.route": None if route == "other" else route,
            "http.response.status_code": status,
            "url.path": scope["path"],  # without the query, which may be a text
            "url.scheme": scope["scheme"],
            "client.address": scope["client"][0] if scope.get("client") else None,
            "error.type": str(status or "no answer") if failed else None,
            "labelgrove.request_id": id.decode(),
            "labelgrove.model": model or None,
            "labelgrove.k": trail.k,
            "labelgrove.texts": trail.texts,
        }
        headers = {name.decode("latin-1"): x.decode("latin-1") for name, x in scope["headers"]}
        request = self._tracer.start_span(
            scope["method"] if route == "other" else f"{scope['method']} {route}",
            self._extract(headers),
            self._api.SpanKind.SERVER,
            {name: x for name, x in attributes.items() if x is not None},
            start_time=nanoseconds(started),
        )
        if failed:
            request.set_status(self._api.StatusCode.ERROR)
        inside = self._api.set_span_in_context(request)
        if trail.queued is not None:
            begin = nanoseconds(trail.queued)
            waiting = self._tracer.start_span("queue", inside, start_time=begin)
            waiting.end(nanoseconds(trail.started))
        if trail.started is not None:
            begin = nanoseconds(trail.started)
            predicting = self._tracer.start_span("predict", inside, start_time=begin)
            if trail.batch_texts is not None:
                predicting.set_attribute("labelgrove.batch_texts", trail.batch_texts)
            predicting.end(nanoseconds(trail.ended))
        request.end(now_ns)

    def close(self) -> None:
        """Sends what is left, but does not wait long for a collector that does not answer."""
        sending = threading.Thread(target=self._processor.shutdown, daemon=True)
        sending.start()
        sending.join(LAST_SECONDS)
        if sending.is_alive():
            self._exporter.shutdown()
