"""The network below the HTTP clients: certificates, proxies, and a bound on what comes before an answer begins.

Theory. Before its answer a server may send as many informational responses (1xx) as it likes (RFC 9110, section 15.2),
and the HTTP library reads on until the answer comes. It does so in `handle_async_request`, which returns with the
answer's head; the body is read elsewhere. So what is read in there counts, and others have their turns in between.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

_MOST_BYTES = 128 * 1024
"""Before the body: a head has at most some 100 KB."""
_AT_ONCE = 8 * 1024
_left: ContextVar[list[int] | None] = ContextVar("left", default=None)
"""Bytes that may still come before the body of the awaited answer; None: its head has come."""


@cache
def tls() -> ssl.SSLContext:
    """The TLS context for all servers and their authorization servers: to read the certificates takes tens of
    milliseconds of all.
    """
    return httpx2.create_ssl_context()


def proxy_for(url: httpx2.URL) -> str | None:
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(url.host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


class Network(httpx2.AsyncHTTPTransport):
    """Connections to one server."""

    def __init__(self, url: httpx2.URL, limits: httpx2.Limits) -> None:
        super().__init__(verify=tls(), proxy=proxy_for(url), limits=limits)
        self._pool._network_backend = _Backend(self._pool._network_backend)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, as far as its head.

        Raises:
            httpx2.TransportError: there is none, or too much has come before it.
        """
        before = _left.set([_MOST_BYTES])
        try:
            return await super().handle_async_request(request)
        finally:
            _left.reset(before)


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, inner: httpcore2.AsyncNetworkBackend) -> None:
        self._inner = inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Stream(httpcore2.AsyncNetworkStream):
    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = _left.get()
        if left is None:
            return await self._inner.read(max_bytes, timeout)
        if left[0] < _MOST_BYTES:
            await asyncio.sleep(0)
        data = await self._inner.read(min(max_bytes, _AT_ONCE), timeout)
        left[0] -= len(data)
        if left[0] < 0:
            raise httpcore2.RemoteProtocolError("too much has come before the answer")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
