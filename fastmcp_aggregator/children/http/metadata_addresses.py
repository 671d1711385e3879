"""A block list against SSRF: the addresses at which clouds hand out credentials are never connected to.

They give credentials to every process on the machine, and no server is there. Other private addresses and this
machine's own are allowed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import httpx2

from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure

_ADDRESSES = frozenset(
    ipaddress.ip_address(address)
    for address in (
        *("169.254.169.254", "fd00:ec2::254", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"),  # AWS; ECS, EKS
        *("fd20:ce::254", "168.63.129.16", "100.100.100.200", "192.0.0.192"),  # Google, Azure, Alibaba, Oracle
        *("169.254.42.42", "fd00:42::42", "169.254.0.23"),  # Scaleway, Tencent
    )
)
_LINK_LOCAL = ipaddress.IPv4Network("169.254.0.0/16")
"""The range of new services of this kind; servers are given no address there (RFC 3927)."""
_HOSTS = frozenset({"metadata.google.internal", "metadata.goog"})
_EMBEDDED = (
    *((2, 3, 4, 5), (4, 5, 6, 7)),  # 6to4 (RFC 3056), the server of Teredo (RFC 4380), NAT64 with /32
    *((5, 6, 7, 9), (6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12)),  # NAT64 with /40 to /64 (RFC 6052, section 2.2)
    (12, 13, 14, 15),  # mapped, compatible, translated, ISATAP, NAT64 with /96
)
"""The bytes of an IPv6 address that may be an IPv4 address to which it leads."""
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
_6TO4 = ipaddress.IPv6Network("2002::/16")


def is_metadata_address(host: str) -> bool:
    """True if a host name or an address in text, in any spelling, is one of a metadata service."""
    plain = unicodedata.normalize("NFKC", host).replace("。", ".").strip("[]").partition("%")[0].rstrip(".").lower()
    address = _address(plain)
    if address is None:
        return plain in _HOSTS
    if isinstance(address, IPv4Address):
        return address in _ADDRESSES or address in _LINK_LOCAL
    return address in _ADDRESSES or any(_leads_there(address))


def refuse_host(host: str) -> None:
    """Raise HttpFailed if the host is one of a metadata service."""
    if is_metadata_address(host):
        raise _refused()


async def guard(request: httpx2.Request) -> None:
    """Keep a request from such an address: a `request` hook of an HTTP client.

    Looks at the host as it is written, at what it resolves to, and at who was then connected to. A proxy resolves names
    for itself; only the first is looked at then.

    Raises:
        HttpFailed: it is written like one. Sending it raises the same for the rest.
    """
    refuse_host(request.url.host)
    request.extensions = {**request.extensions, "trace": _watch_connecting}


async def _watch_connecting(event: str, info: dict[str, Any]) -> None:
    """The last look is for a name that resolves to something else the next time. Nothing has been sent by then."""
    if event == "connection.connect_tcp.started":
        for address in await _resolved(info["host"], info["timeout"]):
            refuse_host(address)
    elif event == "connection.connect_tcp.complete":
        stream = info["return_value"]
        peer = stream.get_extra_info("server_addr")
        if not peer or is_metadata_address(str(peer[0])):
            await stream.aclose()
            raise _refused() if peer else HttpFailed(HttpFailure("unreachable", "the connection was lost at once"))


def _refused() -> HttpFailed:
    reason = "its address is that of a cloud metadata service, which is never connected to; check its `url`"
    return HttpFailed(HttpFailure("unreachable", reason))


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Also decimal, octal, hexadecimal and shortened spellings, which the system's resolver takes."""
    with suppress(ValueError):
        return ipaddress.ip_address(text)
    with suppress(OSError, UnicodeError, ValueError):
        return IPv4Address(socket.inet_aton(text))
    return None


def _leads_there(address: IPv6Address) -> Iterator[bool]:
    """For each address to which an IPv6 address may lead, True if it is one of a metadata service. In arbitrary bytes
    only whole addresses count, which nothing else has.
    """
    data = address.packed
    found = [IPv4Address(bytes(data[index] for index in indices)) for indices in _EMBEDDED]
    found.append(IPv4Address(bytes(byte ^ 0xFF for byte in data[12:])))  # the client of Teredo (RFC 4380, section 4)
    yield from (embedded in _ADDRESSES for embedded in found)
    if any(address in network for network in _TRANSLATED):
        yield found[-2] in _LINK_LOCAL
    if address in _6TO4:
        yield found[0] in _LINK_LOCAL


async def _resolved(host: str, timeout: float | None) -> list[str]:
    try:
        async with asyncio.timeout(timeout):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return []  # connecting fails the same way, and says so
    return [str(sockaddr[0]) for *_, sockaddr in found]
