"""Which names in the ``Host`` header the service answers to.

A web page elsewhere can point its own name to 127.0.0.1 and then send requests to a local service
as if both came from the same place (DNS rebinding). The browser still says in ``Host`` which name
it uses, so a service on loopback answers only to names of loopback unless the user gives others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Sequence

from labelgrove.errors import ConfigError

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
    local = _is_loopback(bound)
    if not given and not local:
        return None
    names = {*given, *LOOPBACK, bound} if local else set(given)
    return sorted({host_name(name) for name in names})


def host_name(host: str) -> str:
    """A host without its port, in lower case; IPv6 addresses have brackets.

    >>> host_name("LocalHost:8000"), host_name("[::1]:8000"), host_name("::1")
    ('localhost', '[::1]', '[::1]')
    """
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    if host.count(":") > 1:
        return f"[{host.lower()}]"
    return host.partition(":")[0].lower().removesuffix(".")


def is_allowed(headers: Iterable[tuple[bytes, bytes]], allowed: Collection[str]) -> bool:
    """Whether there is a Host header and every one has an allowed name."""
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    return bool(hosts) and all(host_name(host) in allowed for host in hosts)


def _is_loopback(host: str) -> bool:
    if host_name(host) == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
