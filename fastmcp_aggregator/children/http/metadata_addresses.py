"""A block list against SSRF: the addresses at which clouds hand out credentials are never connected to.

They give credentials to every process on the machine, and no server is there. Other private addresses and this
machine's own are allowed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure

_ADDRESSES = frozenset(
    ipaddress.ip_address(address)
    for address in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254", "168.63.129.16")
)
_HOSTS = frozenset({"metadata.google.internal"})


def is_metadata_address(host: str) -> bool:
    """Whether a host name or an address in text is one of a metadata service."""
    plain = host.strip("[]").partition("%")[0].rstrip(".").lower()
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return plain in _HOSTS
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address) in _ADDRESSES


def refuse_host(host: str) -> None:
    """Raise HttpFailed if the host is one of a metadata service."""
    if is_metadata_address(host):
        reason = "its address is that of a cloud metadata service, which is never connected to; check its `url`"
        raise HttpFailed(HttpFailure("unreachable", reason))


async def watch_connecting(event: str, info: dict[str, Any]) -> None:
    """A `trace` extension of the HTTP client: looks at what a name resolves to, and at who was then connected to.

    The second look is for a name that resolves to something else the next time. Nothing has been sent by then.
    """
    if event == "connection.connect_tcp.started":
        for address in await _resolved(info["host"], info["timeout"]):
            refuse_host(address)
    elif event == "connection.connect_tcp.complete":
        stream = info["return_value"]
        peer = stream.get_extra_info("server_addr")
        try:
            refuse_host(str(peer[0]) if peer else "")
        except HttpFailed:
            await stream.aclose()
            raise


async def _resolved(host: str, timeout: float | None) -> list[str]:
    try:
        async with asyncio.timeout(timeout):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return []  # connecting fails the same way, and says so
    return [str(sockaddr[0]) for *_, sockaddr in found]
