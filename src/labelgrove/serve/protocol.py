"""uvicorn's HTTP protocol with limits on what comes before a request, and on clients that dawdle.

``request_limits.py`` sees a request when its headers are complete. This protocol bounds what
happens before and after that: connections, bytes, number and seconds of headers, bytes that a
refused client may still send, and the time in which an answer has to be read.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from labelgrove.serve.metrics import Metrics
from labelgrove.serve.problems import Problem
from labelgrove.serve.request_limits import NO_SNIFFING
from labelgrove.serve.settings import ServeParams

if sys.platform != "win32":
    import resource

log = logging.getLogger(__name__)

# A client that is answered before its body has arrived may send this much more, for this long.
# Closing at once would reset the connection, and the client could not read the answer.
DRAIN_BYTES, DRAIN_SECONDS = 64 << 20, 10.0
# A closing connection on which nothing moves for this long is cut.
STILL_SECONDS = 2.0
# An answer that is waiting to be read has to shrink by this much in max_seconds.
LEAST_READ = 16 << 10
# Refused connections that may stay open for a moment, until their client has read why.
REFUSED = 64
# Descriptors left for everything else: a new model's files, the report, metrics.
SPARE = 64


class ConnectionLimits:
    """The connections of one process, in total and by address.

    >>> limits = ConnectionLimits(ServeParams(max_connections_per_address=1), Metrics())
    >>> limits.enter("192.0.2.7"), limits.enter("192.0.2.7").code
    (None, 'too-many-connections')
    """

    def __init__(self, params: ServeParams, metrics: Metrics) -> None:
        self.params = params
        self.metrics = metrics
        self.limit = params.max_connections
        self.limit_per_address = params.max_connections_per_address
        self.refused = 0  # refused connections that are still open
        self._open = 0
        self._addresses: Counter[str] = Counter()
        room = _free_descriptors()
        if room is not None and room < self.limit:
            self.limit = max(1, room)
            share = self.limit_per_address / params.max_connections
            self.limit_per_address = max(1, int(share * self.limit))
            log.warning(
                "max_connections: %d instead of %d, because the process may open few files; "
                "raise the limit (ulimit -n)",
                self.limit,
                params.max_connections,
            )

    def enter(self, address: str | None) -> Problem | None:
        """Counts a connection, or says why it is refused."""
        name = network(address)
        own = 0 if name is None else self._addresses[name]
        detail = None
        if self._open >= self.limit:
            detail = f"the service has {self._open} open connections; try again later"
        elif own >= self.limit_per_address:
            detail = f"your address has {own} open connections; close some"
        if detail is not None:
            return Problem("too-many-connections", detail, retry_after=1)
        if name is not None:
            self._addresses[name] += 1
        self._count(1)
        return None

    def leave(self, address: str | None) -> None:
        """Forgets a connection that entered."""
        self._count(-1)
        name = network(address)
        if name is not None:
            self._addresses[name] -= 1
            if not self._addresses[name]:
                del self._addresses[name]

    def _count(self, by: int) -> None:
        self._open += by
        self.metrics.open_connections.set(self._open)


def network(address: str | None) -> str | None:
    """What counts as one address: an IPv4 address, or the /64 that one IPv6 host usually owns.

    >>> network("::ffff:192.0.2.7"), network("2001:db8::1:2:3:4"), network(None)
    ('192.0.2.7', '2001:db8::/64', None)
    """
    if address is None:
        return None
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def allow_descriptors(connections: int) -> None:
    """Raises the process's own limit of open files, so that ``connections`` fit if they can."""
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = connections + REFUSED + 2 * SPARE + _open_descriptors()
        if hard != resource.RLIM_INFINITY:
            needed = min(needed, hard)
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _free_descriptors() -> int | None:
    """How many connections fit below the limit of open files; None: any number."""
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    return soft - REFUSED - SPARE - _open_descriptors()


def _open_descriptors() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        if Path(folder).is_dir():
            return sum(1 for _ in Path(folder).iterdir())
    return SPARE


class TooLarge(Exception):
    """Ends the parser's work."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection. The app's lifespan puts the limits into the state that uvicorn hands over."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections: ConnectionLimits = self.app_state["limits"]
        self._limits = self._connections.params
        self._address: str | None = None
        self._entered = False
        self._refused = False
        self._deaf = False  # ends after the answers that are due; reads no further request
        self._problem: Problem | None = None
        # Where the parser is: before or in headers, then until the end of the body.
        self._awaits_head = True
        self._in_message = False
        self._head_bytes = 0  # of the address, headers and trailers that the parser has reported
        self._head_count = 0
        self._reports = 0
        self._silent_bytes = 0  # since the parser has reported anything
        self._drained = 0
        self._timer: asyncio.TimerHandle | None = None  # headers, then what comes after an answer
        self._unread_timer: asyncio.TimerHandle | None = None

    # The connection's beginning and end

    def connection_made(self, transport: Any) -> None:
        """Lets the client in, or says why not."""
        # An answer is sent in two pieces, and with Nagle's algorithm the second would wait 40 ms
        # for the client to acknowledge the first. asyncio switches it off only for sockets that
        # it opens itself.
        connection = transport.get_extra_info("socket")
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(ClosingGently(transport, self))  # type: ignore[arg-type]
        self._address = self.client[0] if self.client else None
        problem = self._connections.enter(self._address)
        self._entered = problem is None
        if problem is None:
            self._set_timer(self._limits.max_header_seconds, self._headers_are_late)
        elif self._connections.refused >= REFUSED:
            self._count(problem)
            transport.abort()
        else:
            self._refused = True
            self._connections.refused += 1
            self._refuse(problem)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection and its timers."""
        if self._entered:
            self._connections.leave(self._address)
        if self._refused:
            self._connections.refused -= 1
        self._entered = self._refused = False
        self._set_timer()
        self._set_unread_timer(False)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    # What comes in

    def data_received(self, data: bytes) -> None:
        """Feeds the parser, unless the connection is only being emptied before it closes."""
        if self.transport.is_closing() or self._deaf:
            self._drain(len(data))
            return
        if self._in_body and self._answered:
            self._drain(len(data))
        reports = self._reports
        super().data_received(data)
        if self.transport.is_closing() or self._deaf:
            return
        # A header is reported when it is complete, and the parser collects its beginning.
        self._silent_bytes = self._silent_bytes + len(data) if self._reports == reports else 0
        if self._head_bytes + self._silent_bytes > self._limits.max_header_bytes:
            self._refuse(self._too_large())
        elif self._awaits_head and self._answered and self._timer is None:
            # uvicorn's own timer for idle connections has stopped with the first byte.
            self._set_timer(self._limits.max_header_seconds, self._headers_are_late)

    def on_message_begin(self) -> None:
        self._reports += 1
        self._in_message = True
        self._head_bytes = self._head_count = self._drained = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after a body in chunks."""
        self._head_count += 1
        self._count_head(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._reports += 1
        super().on_headers_complete()
        self._awaits_head = False
        self._set_timer()

    def on_chunk_header(self) -> None:
        self._reports += 1

    def on_body(self, body: bytes) -> None:
        self._reports += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._reports += 1
        self._in_message, self._awaits_head = False, True
        super().on_message_complete()
        self._set_timer()  # it may have been answered before its end

    def on_response_complete(self) -> None:
        """The answer is on its way; the rest of its request, or of the next, has to come soon."""
        super().on_response_complete()
        if self.transport.is_closing() or not self._answered:
            return
        if self._in_body:
            self._set_timer(DRAIN_SECONDS, self.transport.close)
        elif self._in_message:
            self._unset_keepalive_if_required()
            self._set_timer(self._limits.max_header_seconds, self._headers_are_late)

    def shutdown(self) -> None:
        """The server stops: open requests are answered, half ones are not waited for."""
        if self._answered:
            self._in_message = False
        super().shutdown()

    @property
    def _in_body(self) -> bool:
        return self._in_message and not self._awaits_head

    @property
    def _answered(self) -> bool:
        """Whether no answer is due."""
        return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

    def _count_head(self, size: int) -> None:
        self._reports += 1
        self._head_bytes += size
        limits = self._limits
        if self._head_bytes > limits.max_header_bytes or self._head_count > limits.max_headers:
            self._problem = self._too_large()
            raise TooLarge

    def _too_large(self) -> Problem:
        limits = self._limits
        return Problem(
            "headers-too-large",
            f"a request may have at most {limits.max_headers} headers and "
            f"{limits.max_header_bytes:,} bytes of address and headers",
        )

    def _headers_are_late(self) -> None:
        self._timer = None
        if self._in_message or self._silent_bytes:
            limit = f"{self._limits.max_header_seconds:g} s"
            self._refuse(Problem("slow-headers", f"the headers did not arrive within {limit}"))
        else:  # browsers open connections that they may never use
            self.transport.close()

    def _drain(self, size: int) -> None:
        self._drained += size
        if self._drained > DRAIN_BYTES:
            self.transport.abort()

    # What goes out

    def send_400_response(self, msg: str) -> None:
        """Answers what the parser does not understand or what is too large."""
        self._refuse(self._problem or Problem("invalid-http", "this is not a valid HTTP request"))

    def _refuse(self, problem: Problem) -> None:
        """Answers without the app, and closes."""
        self._count(problem)
        if not self._answered and (
            self._awaits_head or self.pipeline or self.cycle.response_started
        ):
            # The client would take this for the answer to an earlier request.
            self._deaf = self._in_message = True
            self.cycle.keep_alive = False
            return
        answer = problem.response()
        lines = [b"HTTP/1.1 %d %s" % (problem.status, HTTPStatus(problem.status).phrase.encode())]
        headers = [*self.server_state.default_headers, *answer.raw_headers]
        headers += [NO_SNIFFING, (b"connection", b"close")]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join([*lines, b"", answer.body]))
        self._in_message = True  # more of it may come
        self.transport.close()

    def _count(self, problem: Problem) -> None:
        self._connections.metrics.count_request("other", problem.status)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_unread_timer(True)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._set_unread_timer(False)

    def _set_unread_timer(self, on: bool) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
        if on:
            unread = self.transport.get_write_buffer_size()
            self._unread_timer = self.loop.call_later(
                self._limits.max_seconds, self._check_unread, unread
            )

    def _check_unread(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - LEAST_READ:
            self.transport.abort()
        else:
            self._set_unread_timer(True)

    def _set_timer(self, seconds: float = 0.0, action: Callable[[], None] | None = None) -> None:
        """Replaces the timer; without arguments it is only stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if action is not None:
            self._timer = self.loop.call_later(seconds, action)

    def about_to_close(self) -> bool:
        """Prepares the end; whether the client may still be sending."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._unset_keepalive_if_required()
        self._drained = 0
        self._check_closing(self.loop.time() + DRAIN_SECONDS)
        if self._in_message:
            self.flow.resume_reading()
        return self._in_message

    def _check_closing(self, end: float, before: tuple[int, int] | None = None) -> None:
        """Cuts a closing connection whose client neither reads nor sends, or does so for long."""
        state = self._drained, self.transport.get_write_buffer_size()
        if state == before or self.loop.time() >= end:
            self.transport.abort()
        else:
            self._set_timer(STILL_SECONDS, partial(self._check_closing, end, state))


class ClosingGently:
    """A transport whose ``close`` lets a client that is still sending read its answer first."""

    def __init__(self, transport: Any, protocol: GuardedProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._closing = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Sends, unless the last byte has been sent."""
        if not self._closing:
            self._transport.write(data)

    def abort(self) -> None:
        """Ends the connection now; what is unsent is lost."""
        self._closing = True
        self._transport.abort()

    def close(self) -> None:
        """Sends what is left; then closes, at once or when the client has stopped sending."""
        if self._closing or self._transport.is_closing():
            return
        self._closing = True
        if self._protocol.about_to_close() and self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()
