"""Loopback: what only this machine can reach, and whether a request comes from it.

Light to import, so that the command line can check an address before anything is started.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from fastmcp_aggregator.errors import AggregatorError

_OF_PROXIES = (b"forwarded", b"via", b"x-real-ip", b"x-forwarded-")
"""Prefixes of headers that proxies add."""


def require_safe_bind(host: str, *, has_auth: bool) -> None:
    """Refuse to listen beyond loopback without authentication.

    Raises:
        AggregatorError: anybody on the network could call every tool.
    """
    if not has_auth and not is_loopback(host):
        raise AggregatorError(
            f"refusing to listen on {host}: anyone who can reach it could call every tool. "
            "Listen on 127.0.0.1, or make a key with `fastmcp-aggregator keys create NAME --file keys.json` and set "
            "FASTMCP_AGGREGATOR_KEYS_FILE=keys.json (in Python: give the app an `auth` provider)"
        )


def require_safe_origins(origins: Collection[str], *, has_auth: bool) -> None:
    """Refuse any origin (`*`) without authentication: each web page opened on this machine could call every tool.

    Raises:
        AggregatorError: any web page could call every tool.
    """
    if "*" in origins and not has_auth:
        raise AggregatorError(
            "refusing `*` in `cors_origins`: without authentication any web page could call every tool. "
            "Name the origins, or let callers authenticate (`keys_file`)"
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """The address, or of IPv6 its /64 prefix: one client has as many addresses as begin with the same 64 bits."""
    found = _address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((found, 64), strict=False))
    return address if found is None else str(found)


@lru_cache(maxsize=1024)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def is_one_of(address: str, networks: Collection[str]) -> bool:
    found = _address(address) if networks else None
    return found is not None and any(found in ipaddress.ip_network(network, strict=False) for network in networks)


def is_local(scope: Mapping[str, Any]) -> bool:
    """True if an ASGI request came over loopback, by a loopback name, past no proxy, to a hub without authentication.

    The sender of such a request can also call every tool. With authentication it is never local: the hub is for others,
    and a proxy that leaves no trace may stand before it.
    """
    client = scope.get("client")
    if "user" in scope or client is None or not is_loopback(client[0]):  # `user` is there wherever authentication is
        return False
    # nginx, unless it is told to, adds no header, but it asks in HTTP/1.0.
    if scope.get("http_version") == "1.0":
        return False
    headers = [(name.lower(), value) for name, value in scope.get("headers", ())]
    if any(name.startswith(_OF_PROXIES) for name, _ in headers):
        return False
    return all(_is_own_name(value.decode("latin-1")) for name, value in headers if name == b"host")


def _is_own_name(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
