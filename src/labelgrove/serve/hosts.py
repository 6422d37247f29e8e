"""Which names in the ``Host`` header the service answers to, and which senders it refuses.

A web page elsewhere can point its own name to 127.0.0.1 and then send requests to a local service
as if both came from the same place (DNS rebinding). The browser still says in ``Host`` which name
it uses, so a service on loopback answers only to names of loopback unless the user gives others.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

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
