"""Counts connections and decides whether a new one may stay."""

from __future__ import annotations

import ipaddress
import logging
import sys
from collections import Counter
from pathlib import Path

from labelgrove.serve.metrics import Metrics
from labelgrove.serve.problems import Problem
from labelgrove.serve.settings import ServeParams

if sys.platform != "win32":
    import resource

log = logging.getLogger(__name__)

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
