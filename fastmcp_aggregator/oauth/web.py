"""Requests to authorization servers: bounded, never redirected, and never to a cloud's metadata service.

Where they go is said by a server that may be anybody's. No message repeats what comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2

from fastmcp_aggregator.children.http.event_streams import read_body
from fastmcp_aggregator.children.http.failures import of_exception
from fastmcp_aggregator.children.http.metadata_addresses import guard, is_metadata_address
from fastmcp_aggregator.children.http.network import Network
from fastmcp_aggregator.children.session.transport_failure import HttpFailed
from fastmcp_aggregator.oauth.errors import NoAnswer, Unreachable

_ANSWER_BOUND = 20.0
_LARGEST_ANSWER = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: httpx2.Headers
    body: bytes

    def as_response(self, request: httpx2.Request) -> httpx2.Response:
        """The answer as the SDK's functions read it."""
        return httpx2.Response(self.status, headers=self.headers, content=self.body, request=request)


async def sent(request: httpx2.Request) -> HttpAnswer:
    """The answer to a request. Raises NoAnswer: there is none."""
    request.headers["Accept-Encoding"] = "identity"
    request.headers.setdefault("Accept", "application/json")
    try:
        async with asyncio.timeout(_ANSWER_BOUND):
            return await _answer(request)
    except TimeoutError:
        raise NoAnswer(f"{_origin(str(request.url))} cannot be asked: it did not answer in time") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, HttpFailed, OSError) as error:
        raise NoAnswer(f"{_origin(str(request.url))} cannot be asked: {of_exception(error).reason}") from None


async def _answer(request: httpx2.Request) -> HttpAnswer:
    network = Network(request.url, httpx2.Limits())
    async with httpx2.AsyncClient(transport=network, timeout=_ANSWER_BOUND, event_hooks={"request": [guard]}) as client:
        response = await client.send(request, stream=True)
        headers = response.headers.copy()
        for name in ("content-encoding", "content-length", "transfer-encoding"):
            headers.pop(name, None)
        return HttpAnswer(response.status_code, headers, await read_body(response, _LARGEST_ANSWER))


async def posted(url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> HttpAnswer:
    """The answer to a form. Raises Unreachable: there is none."""
    try:
        request = httpx2.Request("POST", url, data=dict(form), headers=dict(headers))
    except httpx2.InvalidURL:
        raise Unreachable("an address in its metadata is not valid") from None
    return await sent(request)


def require_secure(url: str, server_url: str) -> str:
    """The address, which may be without TLS only if the server's own is, and is none of a cloud's.

    Raises:
        Unreachable: it is another.
    """
    if is_metadata_address(urlsplit(url).hostname or ""):
        raise Unreachable("an address in its metadata is that of a cloud metadata service, and is not used")
    if urlsplit(server_url).scheme == "https" and urlsplit(url).scheme != "https":
        raise Unreachable("an address in its metadata is without TLS, and is not used")
    return url


def _origin(url: str) -> Any:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")
