"""HTTP/1.1 for the clients of the tests, which open thousands of connections: each request has one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2

_LIMIT = 64 * 1024 * 1024


class OneConnectionEach(httpx2.AsyncBaseTransport):
    """A quarter of the work of `httpx2.AsyncHTTPTransport`, which has pools, proxies, TLS and bounds of time."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            reader, writer = await asyncio.open_connection(request.url.host, request.url.port, limit=_LIMIT)
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        try:
            with suppress(ConnectionError):  # the server may have answered before it has read all
                await _send(request, writer)
            status, headers = await _head(reader)
        except (OSError, asyncio.IncompleteReadError) as error:
            writer.close()
            raise httpx2.RemoteProtocolError(repr(error), request=request) from error
        except BaseException:
            writer.close()
            raise
        return httpx2.Response(status, headers=headers, stream=_Body(request, status, dict(headers), reader, writer))


async def _send(request: httpx2.Request, writer: asyncio.StreamWriter) -> None:
    lines = [f"{request.method} ".encode() + request.url.raw_path + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in request.headers.raw]
    writer.write(b"\r\n".join([*lines, b"", b""]))
    is_chunked = "transfer-encoding" in request.headers
    assert isinstance(request.stream, httpx2.AsyncByteStream)
    async for part in request.stream:
        writer.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
        await writer.drain()
    if is_chunked:
        writer.write(b"0\r\n\r\n")


async def _head(reader: asyncio.StreamReader) -> tuple[int, list[tuple[bytes, bytes]]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]
    pairs = (line.partition(b":") for line in lines)
    return int(first.split(b" ")[1]), [(name.lower(), value.strip()) for name, _, value in pairs]


class _Body(httpx2.AsyncByteStream):
    """The body of a response; its connection is closed with it."""

    def __init__(
        self,
        request: httpx2.Request,
        status: int,
        headers: dict[bytes, bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._request = request
        self._headers = headers
        self._is_empty = request.method == "HEAD" or status in (204, 304)
        self._reader = reader
        self._writer = writer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if self._is_empty:
                return
            if self._headers.get(b"transfer-encoding") == b"chunked":
                while size := int(await self._reader.readuntil(b"\r\n"), 16):
                    yield (await self._reader.readexactly(size + 2))[:-2]
            else:
                yield await self._reader.readexactly(int(self._headers[b"content-length"]))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise httpx2.RemoteProtocolError(repr(error), request=self._request) from error

    async def aclose(self) -> None:
        self._writer.close()
