"""Whether an HTTP request comes from a user of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fastmcp_aggregator.access.binding import is_loopback

_OF_PROXIES = (b"forwarded", b"via", b"x-real-ip", b"x-forwarded-")
"""How headers begin that proxies add."""


def is_local(scope: Mapping[str, Any]) -> bool:
    """Whether an ASGI request came over loopback, by a loopback name, past no proxy, to a hub without authentication.

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
