"""The HTTP client of one remote child: adds the secrets, and bounds what it receives.

Theory. The SDK's transports put whatever an HTTP library raises into a task group, where one failed request ends the
whole session; and what they make of a status does not say which it was. So nothing is raised here: a request that
failed is answered with a JSON-RPC error made up here, which carries a mark that only this object knows. So each request
learns of its own failure, the others go on, and an error that the child sent can never pass for one of ours.

The SDK is given the URL without user info and query, and no headers. They are added here, below everything that logs,
and only for the origin that they were configured for. What they are is said in `credentials.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Literal

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth
from mcp.client.streamable_http import LAST_EVENT_ID
from mcp_types import INTERNAL_ERROR, METHOD_NOT_FOUND

from fastmcp_aggregator.children.http.credentials import Credentials, shown_url
from fastmcp_aggregator.children.http.event_streams import (
    BoundedEvents,
    EventBody,
    StreamBreaker,
    Throttle,
    Unfinished,
    read_body,
    read_start,
)
from fastmcp_aggregator.children.http.failures import (
    BROKEN,
    cancelled_id,
    compressed,
    is_within_origin,
    of_content_type,
    of_exception,
    of_status,
    request_id,
)
from fastmcp_aggregator.children.http.large_messages import LargeMessages
from fastmcp_aggregator.children.http.metadata_addresses import guard
from fastmcp_aggregator.children.http.network import Network
from fastmcp_aggregator.children.session.in_flight import caller_now, child_has_hung_up, headers_of_caller
from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure
from fastmcp_aggregator.config.disclosure import shown

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT = 10.0
"""Seconds to connect. How long an answer may take is up to the caller's deadline."""
_TIMEOUT = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT, write=30.0)
_ONE_WAY_TIMEOUT = 5.0
"""Seconds for messages without an answer: notifications, and the DELETE of the session."""
_UNUSED = 16 * 1024
"""Bytes that are read of a body that no request waits for; an error there may be the answer to what was sent."""
_LEAST_UNFINISHED = 64 * 1024**2
"""Bytes of answers that have not come whole, however small the largest may be."""
_KEPT_IDLE = 3.0
"""Seconds for which an idle connection is used again: servers close theirs after five as a rule, without
a word, and a call that is just on its way then is lost.
"""
_SSE_EVENT_LIMIT = 1024**2
"""The limit of the SDK's client for SSE, which has no option for it."""
_MOST_RENEWALS = 3
"""Renewals of its credentials for one request: what another process has just renewed may be refused, too."""
_MOST_COOKIES, _MOST_COOKIE_CHARACTERS = 50, 16 * 1024
"""Bounds of one account's cookies; beyond them cookies are dropped."""
_MOST_JARS = 1000
_NO_COOKIES = DefaultCookiePolicy(allowed_domains=())
_LOOP, _HOP = "cdn-loop", "fastmcp-aggregator-"
"""The header by which requests that come round are known (RFC 8586), and how what we add to it begins."""
_MOST_ROUNDS, _MOST_HOPS = 3, 50
"""Times that a request is sent by the same client, as names with three rounds are listed; and by any, in a row."""
_MOST_QUERIES = 10
"""Addresses that a server may redirect to, within its origin, with a query."""


class RemoteHttp(httpx2.AsyncBaseTransport):
    """Between the SDK and the network. `transport` is the MCP transport; at most `limit` bytes are taken at once."""

    def __init__(self, url: str, credentials: Credentials, *, transport: Literal["http", "sse"], limit: int) -> None:
        full = httpx2.URL(url)
        self.url = httpx2.URL(shown_url(url))
        """The address that the SDK gets, which logs it and quotes it in errors."""
        self.failure: HttpFailure | None = None
        """The latest failure, if nothing has succeeded since."""
        self._queries = {full.path: full.query}
        """Queries by path: the query is as secret as a header, and a redirect usually repeats it."""
        self._credentials = credentials
        self._cookies: dict[Hashable, httpx2.Cookies] = {}
        """Cookies by the principal of the request that they were set for; None: unauthenticated."""
        self._is_sse = transport == "sse"
        self._limit = limit
        self._unfinished = Unfinished(max(2 * limit, _LEAST_UNFINISHED))
        self._mark = secrets.token_hex(16)
        self._hop = f"{_HOP}{secrets.token_hex(8)}"
        self._reopenings = Throttle(at_once=20, per_second=2)
        self._has_answered = False
        self._is_over = False
        self._broken = StreamBreaker()
        self.large_messages = LargeMessages()
        self._responses: dict[int | str | None, StreamBreaker] = {}
        """Breakers of the requests in flight, by request id."""
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_KEPT_IDLE)
        self._network = Network(self.url, limits)

    def client(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """A client for the SDK; its `httpx_client_factory`, which has headers, timeouts and secrets of its own."""
        return httpx2.AsyncClient(transport=self, timeout=_TIMEOUT, cookies=CookieJar(_NO_COOKIES))

    def failure_in(self, data: Any) -> HttpFailure | None:
        """The failure that the data of a JSON-RPC error stands for, if this object has made it up."""
        if isinstance(data, dict) and data.get("mark") == self._mark:
            return HttpFailure(data["kind"], data["reason"], data["pause"])
        return None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the SDK.

        Raises:
            HttpFailed: the event stream could not be opened. A message is always answered.
        """
        await request.aread()
        if request.method == "GET":
            return await self._open_events(request)
        try:
            if request.method == "POST" and (self._is_sse or request_id(request.content) is None):
                return await self._send_one_way(request)
            if request.method == "DELETE":
                return await self._delete_session(request)
            return await self._request(request)
        except Exception as error:
            logger.debug("a request to %s ended with %s", shown("url", str(self.url), "log"), error.__class__.__name__)
            return self._answer_for(request, of_exception(error))

    async def aclose(self) -> None:
        await self._network.aclose()

    # One way to send each kind of message.

    async def _request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request whose answer is in the response."""
        if self.failure is not None and self._is_over:
            return self._answer_for(request, self.failure)
        asked, breaker = request_id(request.content), StreamBreaker()
        self._responses[asked] = breaker
        try:
            received = await breaker.until_set(self._received(request))
        finally:
            self._responses.pop(asked, None)
        if received is None:
            return _json_response(self._error_for(request, BROKEN))
        response, body = received
        if body is None:
            self._has_answered, self.failure = True, None
            return _with_events(response, self._events_of_answer(request, response))
        failure = of_status(request, response, body) or (
            of_content_type(response) if response.status_code < 300 else None
        )
        if failure is not None:
            return self._answer_for(request, failure, status=response.status_code)
        self._has_answered, self.failure = True, None
        return self._forwarded(request, response, body)

    async def _received(self, request: httpx2.Request) -> tuple[httpx2.Response, bytes | None]:
        """The response and its body; None: it is an event stream."""
        response = await self._send(request)
        return response, None if _is_event_stream(response) else await read_body(
            response, self._limit, self._unfinished
        )

    async def _send_one_way(self, request: httpx2.Request) -> httpx2.Response:
        """Send a message whose answer, if any, comes by the event stream. The SDK sends one after the other."""
        accepted = httpx2.Response(202)
        if self._is_over:
            return accepted
        if breaker := self._responses.get(cancelled_id(request.content)):
            breaker.set()  # nobody waits for the response any more, and the server need not end it
        try:
            async with asyncio.timeout(_ONE_WAY_TIMEOUT):
                response = await self._send(request)
                body = await read_start(response, _UNUSED)
        except Exception as error:
            if self._is_sse:
                self._break(of_exception(error))
            return accepted
        failure = of_status(request, response, body)
        if failure is not None and self._is_sse:
            self._break(failure)
            return accepted
        return self._forwarded(request, response) if 300 <= response.status_code < 400 else accepted

    async def _delete_session(self, request: httpx2.Request) -> httpx2.Response:
        """End the session, at a server that still knows it."""
        if not self._is_over:
            with suppress(Exception):
                async with asyncio.timeout(_ONE_WAY_TIMEOUT):
                    await read_start(await self._send(request), _UNUSED)
        return httpx2.Response(204)

    async def _open_events(self, request: httpx2.Request) -> httpx2.Response:
        if LAST_EVENT_ID in request.headers:
            await self._reopenings.after(1)
        try:
            response = await self._send(request)
            if _is_event_stream(response):
                return _with_events(response, self._open_stream(response))
            async with asyncio.timeout(_ONE_WAY_TIMEOUT):
                body = await read_start(response, _UNUSED)
        except Exception as error:
            failure = of_exception(error)
        else:
            found = of_status(request, response, body)
            if found is None and self._is_sse and response.status_code < 300:
                found = of_content_type(response, "an event stream")
            if found is None:
                return self._forwarded(request, response)
            failure = found
        if self._is_sse:
            self.failure = failure
        raise HttpFailed(failure)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        await guard(request)
        response = await self._send_with_secrets(request)
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            await response.aclose()
            raise HttpFailed(compressed(coding))
        return response

    async def _send_with_secrets(self, request: httpx2.Request) -> httpx2.Response:
        """Send a copy: the SDK's own request is logged, and quoted in errors."""
        if not is_within_origin(self.url, request.url):
            return await self._network.handle_async_request(self._copy(request, {}))
        url = request.url
        if not url.query and (query := self._queries.get(url.path)):
            url = url.copy_with(query=query)
        headers: Mapping[str, str] = {**await self._credentials.headers(), _LOOP: self._hops()}
        response = await self._exchange(self._copy(request, headers, url))
        for _ in range(_MOST_RENEWALS if self._credentials.may_be_renewed else 0):
            if response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope":
                await response.aclose()
                headers = await self._credentials.widened(headers, extract_scope_from_www_auth(response))
            elif response.status_code == 401:
                await response.aclose()  # the request was not executed
                headers = await self._credentials.renewed(headers)
            else:
                break
            response = await self._exchange(self._copy(request, headers, url))
        return response

    def _hops(self) -> str:
        """The clients of aggregators that have sent the request of the present context, with this one.

        Raises:
            HttpFailed: it comes round and round.
        """
        named = (headers_of_caller() or {}).get(_LOOP, "").split(",")
        hops = [hop for each in named if (hop := each.strip()).startswith(_HOP)]
        if hops.count(self._hop) >= _MOST_ROUNDS or len(hops) >= _MOST_HOPS:
            raise HttpFailed(HttpFailure("unacceptable", "it leads back here: the call comes round and round"))
        return ", ".join((*hops, self._hop))

    async def _exchange(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request with the cookies that were set for its caller, and for nobody: those are the session's, as its
        id is. With none where callers have headers of their own.
        """
        if self._credentials.passes_headers:
            return await self._network.handle_async_request(request)
        caller = caller_now()
        account = None if caller is None else caller.account
        if self._cookies and "cookie" not in request.headers:
            jars = [self._cookies.get(None), self._cookies.get(account) if account is not None else None]
            if found := [text for jar in jars if jar is not None and (text := _header_of(jar, request))]:
                request.headers["Cookie"] = "; ".join(found)
        response = await self._network.handle_async_request(request)
        if "set-cookie" in response.headers:
            self._take_cookies(account, request, response)
        return response

    def _take_cookies(self, account: Hashable, request: httpx2.Request, response: httpx2.Response) -> None:
        if account not in self._cookies and len(self._cookies) >= _MOST_JARS:
            del self._cookies[next(each for each in self._cookies if each is not None)]
        jar = self._cookies.setdefault(account, httpx2.Cookies())
        response.request = request
        jar.extract_cookies(response)
        characters = sum(len(cookie.name) + len(cookie.value or "") for cookie in jar.jar)
        if len(jar.jar) > _MOST_COOKIES or characters > _MOST_COOKIE_CHARACTERS:
            jar.clear()

    def _copy(
        self, request: httpx2.Request, secrets: Mapping[str, str], url: httpx2.URL | None = None
    ) -> httpx2.Request:
        headers = request.headers.copy()
        headers.update(secrets)
        headers["Accept-Encoding"] = "identity"
        return httpx2.Request(
            request.method, url or request.url, headers=headers, stream=request.stream, extensions=request.extensions
        )

    # Responses.

    def _forwarded(self, request: httpx2.Request, response: httpx2.Response, body: bytes = b"") -> httpx2.Response:
        """The response for the SDK, with a body if it reads one; of a redirect within the origin the query is kept."""
        headers = response.headers.copy()
        if 300 <= response.status_code < 400 and "location" in headers:
            location = request.url.join(headers["location"])
            if location.query and len(self._queries) < _MOST_QUERIES:
                self._queries.setdefault(location.path, location.query)
            headers["location"] = str(location.copy_with(query=None, fragment=None))
        is_message = headers.get("content-type", "").lower().startswith("application/json")
        content = self.large_messages.in_place_of(body) if is_message else body
        headers["content-length"] = str(len(content))
        return httpx2.Response(response.status_code, headers=headers, content=content)

    def _answer_for(self, request: httpx2.Request, failure: HttpFailure, *, status: int = 0) -> httpx2.Response:
        """Answer with a JSON-RPC error of our own, and record the failure."""
        self._note(failure)
        return _json_response(self._error_for(request, failure, status))

    def _note(self, failure: HttpFailure) -> None:
        if failure.kind != "unacceptable":
            self.failure = failure
        if failure.kind in ("unreachable", "expired") or (failure.kind == "broken" and not self._has_answered):
            # Not asked again: which era a server speaks is not to be told from one lucky second attempt.
            self._is_over = True

    def _error_for(self, request: httpx2.Request, failure: HttpFailure, status: int = 0) -> bytes:
        """The code is the one that the SDK chooses, which decides how it goes on when it connects."""
        data = {"mark": self._mark, "kind": failure.kind, "reason": failure.reason, "pause": failure.pause}
        code = METHOD_NOT_FOUND if status == 404 else INTERNAL_ERROR
        error = {"code": code, "message": failure.reason, "data": data}
        return json.dumps({"jsonrpc": "2.0", "id": request_id(request.content), "error": error}).encode()

    async def _events_of_answer(self, request: httpx2.Request, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The events of one request; the last is the answer, or ours in its place."""
        asked, stream = request_id(request.content), StreamBreaker()
        self._responses[asked] = stream
        events = BoundedEvents(response, self._limit, self.large_messages, self._unfinished, stream)
        try:
            async for event in events:
                yield event
        finally:
            self._responses.pop(asked, None)
        if events.failure is None and events.is_resumable and not stream.is_set:
            child_has_hung_up()
            return  # the SDK asks for the rest
        failure = events.failure or BROKEN
        if not stream.is_set:
            self._note(failure)
        yield b"event: message\ndata: " + self._error_for(request, failure) + b"\n\n"

    async def _open_stream(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        """The rest of an answer, or the events that belong to no request, or in the SSE transport to all of them."""
        limit = min(self._limit, _SSE_EVENT_LIMIT) if self._is_sse else self._limit
        broken = self._broken if self._is_sse else None
        events = BoundedEvents(response, limit, self.large_messages, self._unfinished, broken)
        async for event in events:
            yield event
        if events.failure is None:
            child_has_hung_up()
        elif self._is_sse:
            self.failure = self.failure or events.failure

    def _break(self, failure: HttpFailure) -> None:
        """End the event stream, and so the session: the SDK would wait for an answer that cannot come."""
        self.failure = failure
        self._broken.set()


def _json_response(content: bytes) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=content)


def _is_event_stream(response: httpx2.Response) -> bool:
    content_type: str = response.headers.get("content-type", "")
    return response.status_code < 300 and content_type.lower().startswith("text/event-stream")


def _with_events(response: httpx2.Response, events: AsyncIterator[bytes]) -> httpx2.Response:
    return httpx2.Response(response.status_code, headers=response.headers, stream=EventBody(events, response))


def _header_of(jar: httpx2.Cookies, request: httpx2.Request) -> str:
    """The header with these cookies."""
    asked = httpx2.Request(request.method, request.url)
    jar.set_cookie_header(asked)
    return str(asked.headers.get("cookie", ""))
