"""The first middleware: counts requests and checks host, token, number, size and speed.

Everything here happens before the body is parsed.

A web page elsewhere can point its own name to 127.0.0.1 and then send requests to a local service
as if both came from the same place (DNS rebinding). The browser still says in ``Host`` which name
it uses, so a service on loopback answers only to names of loopback unless the user gives others.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelgrove.errors import ConfigError
from labelgrove.serve.metrics import Metrics
from labelgrove.serve.problems import Problem, problem_of
from labelgrove.serve.settings import ServeParams

log = logging.getLogger(__name__)

# Open to everyone under any name: they tell only that the service lives.
PROBES = ("/healthz", "/readyz")
# Open without a token: probes and the page's own files, which say nothing about the model.
OPEN_TO_ALL = ("/", *PROBES)
PAGE_FILES = "/page/"
# Where the routes leave the name of the model that was asked.
ASKED = "labelgrove.methods"
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
REQUEST_ID = b"x-request-id"
# An id that a proxy or a client has given is kept; anything else could forge lines of a log.
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class RequestLimits:
    """Wraps an app; refusals are problem+json like all errors."""

    def __init__(
        self,
        app: ASGIApp,
        params: ServeParams,
        metrics: Metrics,
        token: str | None,
        hosts: Collection[str] | None = None,
    ) -> None:
        self._app = app
        self._params = params
        self._metrics = metrics
        self._token = None if token is None else _digest(token.encode())
        self._hosts = None if hosts is None else frozenset(hosts)
        self._open = 0
        self._buffered = 0  # bytes of bodies, from their first byte to their answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status: int | None = None
        body = b""
        id = dict(scope["headers"]).get(REQUEST_ID, b"")
        if not _ID.fullmatch(id):
            id = secrets.token_hex(8).encode()

        async def recording_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"] = list(message.get("headers", ()))
                if all(name != NO_SNIFFING[0] for name, _ in headers):
                    headers.append(NO_SNIFFING)
                headers.append((REQUEST_ID, id))
            await send(message)

        self._change_open(1)
        try:
            receive_rest, body = await self._let_in(scope, receive)
            await self._app(scope, receive_rest, recording_send)
        except Exception as error:
            # uvicorn would close the connection, and the client's next request would fail, too.
            if status is not None:
                raise
            problem = problem_of(error)
            if problem.status == 500:
                log.exception(
                    "%s %s failed (request %s)", scope["method"], scope["path"], id.decode()
                )
            await problem.response()(scope, receive, recording_send)
        finally:
            self._change_open(-1)
            self._buffered -= len(body)
            route = getattr(scope.get("route"), "path", "other")
            if route == "other" and scope["path"] == "/v1/predict":
                route = scope["path"]  # refused before it was routed
            seconds = time.perf_counter() - started
            model = scope.get(ASKED, "")
            self._metrics.count_request(route, status, model, seconds if status == 200 else None)

    def _change_open(self, by: int) -> None:
        self._open += by
        self._metrics.open_requests.set(self._open)

    async def _let_in(self, scope: Scope, receive: Receive) -> tuple[Receive, bytes]:
        """What the app receives, and the body that it holds."""
        headers, path = dict(scope["headers"]), scope["path"]
        hosts = None if path in PROBES else self._hosts
        if hosts is not None and not is_allowed(scope["headers"], hosts):
            raise Problem(
                "wrong-host",
                "the service does not answer to this Host header; "
                "start it with --host-header NAME to allow a name",
            )
        if path in OPEN_TO_ALL or path.startswith(PAGE_FILES):
            return receive, b""
        self._check_token(headers.get(b"authorization", b""))
        if self._open > self._params.max_requests:
            raise Problem("overloaded", "too many requests at once", retry_after=1)
        try:
            async with asyncio.timeout(self._params.max_seconds):
                body = await self._body(headers, receive)
        except TimeoutError:
            limit = f"{self._params.max_seconds:g} s"
            raise Problem("slow-request", f"the body did not arrive within {limit}") from None
        return _replayed(body, receive), body

    def _check_token(self, authorization: bytes) -> None:
        if self._token is None:
            return
        scheme, _, given = authorization.partition(b" ")
        # Digests in constant time reveal neither the token nor its length.
        same = hmac.compare_digest(_digest(given.strip()), self._token)
        if not (same and scheme.lower() == b"bearer"):
            detail = "wrong token" if given else "send the token: Authorization: Bearer TOKEN"
            raise Problem("no-token", detail, headers={"WWW-Authenticate": "Bearer"})

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self._params.max_body
        too_large = Problem("too-large", f"the body may have at most {most:,} bytes")
        stated = headers.get(b"content-length", b"")
        if stated.isdigit() and int(stated) > most:
            raise too_large
        body, more = bytearray(), True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Problem("disconnected", "the client closed the connection")
                piece, more = message.get("body", b""), message.get("more_body", False)
                body += piece
                self._buffered += len(piece)
                if len(body) > most:
                    raise too_large
                if self._buffered > self._params.max_bodies:
                    detail = "the bodies of all open requests are too large together"
                    raise Problem("overloaded", detail, retry_after=1)
        except BaseException:  # given up, also by the time limit
            self._buffered -= len(body)
            raise
        return bytes(body)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the app the body in one piece, then whatever comes from the client."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ANY = "*"


def allowed_hosts(bound: str, given: Sequence[str] = ()) -> list[str] | None:
    """The names for a service that listens on ``bound``; None: any name.

    >>> allowed_hosts("127.0.0.1"), allowed_hosts("0.0.0.0")
    (['127.0.0.1', '[::1]', 'localhost'], None)
    >>> allowed_hosts("0.0.0.0", ["labels.example.org"])
    ['labels.example.org']
    """
    if ANY in given:
        return None
    for name in given:
        if not name or not name.isascii() or not name.isprintable() or set(name) & set(" /@*"):
            raise ConfigError(
                f"--host-header {name!r}: give a name or an address without http:// and path, or "
                f"{ANY} for any"
            )
    local = is_loopback(bound)
    if not given and not local:
        return None
    names = {*given, *LOOPBACK, bound} if local else set(given)
    return sorted({host_name(name) for name in names})


def host_name(host: str) -> str:
    """A host without its port, in lower case; IPv6 addresses have brackets.

    >>> host_name("LocalHost:8000"), host_name("[::1]:8000"), host_name("::1")
    ('localhost', '[::1]', '[::1]')
    >>> host_name("[::1]evil.example")  # as it is, which no service is called
    '[::1]evil.example'
    """
    if not host.startswith("[") and host.count(":") > 1:
        return f"[{host.lower()}]"
    name = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(:[0-9]*)?", host)
    return host.lower() if name is None else name[1].lower().removesuffix(".")


def is_allowed(headers: Iterable[tuple[bytes, bytes]], allowed: Collection[str]) -> bool:
    """Whether there is a Host header and every one has an allowed name."""
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    return bool(hosts) and all(host_name(host) in allowed for host in hosts)


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site sends this; programs say nothing about sites.

    Browsers state it, where they trust the connection; behind a proxy, too. Otherwise the page's
    address must be that of the service.

    >>> is_cross_site({"host": "localhost:80", "origin": "http://localhost:80"})
    False
    >>> is_cross_site({"host": "localhost:80", "origin": "null"})
    True
    """
    if (site := headers.get("sec-fetch-site")) is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


def is_loopback(host: str) -> bool:
    """Whether only this computer can reach the address."""
    if host_name(host) == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
