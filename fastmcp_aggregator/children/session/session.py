"""The held MCP session of one child: raw requests in the child's own era.

Requests and results travel as plain JSON objects. The SDK's typed methods would parse every result into models
that drop what they don't know and cost several times the forward itself. The private parts of the SDK's session and of
FastMCP's client that this needs (`_dispatcher` and its `_allocate_id`, `_stamp`, `_x_mcp_header_maps`;
`_session_kwargs`) are touched in this file and `client_session.py` only, and
`tests/children/test_children_sdk_seams.py` fails when they change.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

from fastmcp.server.providers.proxy import ProxyClient
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value, x_mcp_header_map
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CONNECTION_CLOSED, LOG_LEVEL_META_KEY, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fastmcp_aggregator.children.session.client_session import RelayingSession
from fastmcp_aggregator.children.session.direct import DirectRequests, SessionRequests
from fastmcp_aggregator.children.session.in_flight import ActivityDeadline, AnyCaller, InFlight, RequestsInFlight
from fastmcp_aggregator.children.session.incoming import Incoming, OnNotification, SessionEvents
from fastmcp_aggregator.children.session.transport import WatchedTransport
from fastmcp_aggregator.children.session.transport_failure import HttpFailure, RemoteFailure
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.protocol.methods import LISTEN, METHODS, Era
from fastmcp_aggregator.version import PROGRAM

_TELLING = frozenset({"auth", "status", "broken"})
"""The kinds of failure that can be of one request or of all."""
_STREAMS = itertools.count(1)
_PROBE_BOUND = 5.0
"""Seconds that a failed request waits for the answer to a probe."""
_MODES = {"auto": "auto", "legacy": "legacy", "modern": "auto"}
"""The mode in which FastMCP's client finds the era. Told a modern version, it would not ask the child what it offers.
"""


class ChildSession:
    """An initialised session. `lost` is set when it can no longer be used."""

    def __init__(
        self,
        client: ProxyClient[WatchedTransport],
        requests: RequestsInFlight,
        incoming: Incoming,
        asked: SessionRequests,
    ) -> None:
        """`asked` sends direct requests where the transport has no way beside the session."""
        self._session = client.session
        self._incoming = incoming
        self._requests = requests
        self.lost = client.transport.lost
        self._transport = client.transport
        self.direct: DirectRequests = asked
        """Requests that are sent without waiting for the answer."""
        asked.bind(self._ask)
        if self._transport.direct is not None:
            next_id = self._session._dispatcher._allocate_id  # type: ignore[attr-defined]
            self._transport.direct.bind(requests, next_id, self._addressed)
            self.direct = self._transport.direct
        self._probing = asyncio.Lock()
        self.protocol_version = client.protocol_version or ""
        self.era: Era = "modern" if self.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
        self.instructions = client.instructions
        capabilities = client.server_capabilities
        self.capabilities: dict[str, Any] = (
            capabilities.model_dump(by_alias=True, mode="json", exclude_none=True) if capabilities else {}
        )

    def serves(self, principal: Hashable, holder: Hashable) -> None:
        """Record that a request without a caller is for a principal; see `RequestsInFlight`."""
        self._requests.serves(principal, holder)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        caller: AnyCaller | None = None,
        deadline: ActivityDeadline | None = None,
    ) -> dict[str, Any]:
        """Send one request and wait for its result, as the JSON object that the child sent.

        There is no deadline here. Cancelling the caller cancels the request at the child.

        Raises:
            RemoteFailure: a remote child has not answered, or nothing that can be used.
            MCPError: the child's error unchanged, or -32000 when the connection ended (see `is_over`).
        """
        with self._requests.request(caller, deadline) as request:
            return await self._ask(method, params, request)

    async def _ask(self, method: str, params: Mapping[str, Any] | None, request: InFlight) -> dict[str, Any]:
        data, options = self._addressed(method, params, request)
        try:
            return await self._session._dispatcher.send_raw_request(
                method,
                data.get("params"),
                options,  # type: ignore[arg-type]
            )
        except MCPError as error:
            told = self._transport.translated(error)
            if isinstance(told, RemoteFailure):
                await self._weigh(told.failure, method)
            raise told from None

    def _addressed(
        self, method: str, params: Mapping[str, Any] | None, request: InFlight
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The request with what a child of its era is told with each, on behalf of the request's caller."""
        data: dict[str, Any] = {"method": method}
        if params is not None:
            data["params"] = dict(params)
        caller = request.caller
        meta = dict((params or {}).get("_meta") or {})
        if caller is not None and caller.wants_progress:
            meta["progressToken"] = request.token
        told = caller if self.era == "modern" else None
        if told is not None and "logging" in self.capabilities and (level := told.log_level):
            meta[LOG_LEVEL_META_KEY] = level
        if meta:
            data.setdefault("params", {})["_meta"] = meta
        options: dict[str, Any] = {}
        self._session._stamp(data, options)  # type: ignore[arg-type]
        if told is not None and (declared := told.capabilities) is not None:
            data["params"]["_meta"][CLIENT_CAPABILITIES_META_KEY] = declared
        if self.era == "modern" and (row := METHODS.get(method)) is not None and row.named_by:
            options.setdefault("headers", {})[MCP_NAME_HEADER] = encode_header_value(data["params"][row.named_by])
        return data, options

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        data: dict[str, Any] = {"method": method}
        if params is not None:
            data["params"] = dict(params)
        options: dict[str, Any] = {}
        self._session._stamp(data, options)  # type: ignore[arg-type]
        await self._session._dispatcher.notify(method, data.get("params"), options)  # type: ignore[arg-type]

    def is_over(self, error: MCPError) -> bool:
        """True if a request failed because the connection ended, and not because the child said so."""
        return self.lost.is_set() or (error.code == CONNECTION_CLOSED and error.message == "Connection closed")

    async def probe(self) -> None:
        """Ask for a sign of life, and return with it; any answer is one, "Method not found" too."""
        try:
            await self.request(self._probe_method, None)
        except MCPError as error:
            is_silent = isinstance(error, RemoteFailure) and error.failure.kind in _TELLING
            if is_silent or self.is_over(error):
                self.lost.set()

    @property
    def _probe_method(self) -> str:
        return "ping" if self.era == "legacy" else "server/discover"

    async def _weigh(self, failure: HttpFailure, method: str) -> None:
        """Find out whether a failed request means that the session is over.

        A server may refuse one request, or break down over it, and go on serving others; whether it still answers a
        probe tells. It is asked once, however many requests fail at the same time.
        """
        if failure.kind in ("unreachable", "expired"):
            self.lost.set()
        if failure.kind not in _TELLING or method == self._probe_method or self.lost.is_set():
            return
        if self._probing.locked():
            async with self._probing:
                return
        async with self._probing:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_BOUND):
                    await self.probe()

    def mirror_headers(self, header_schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """Let calls of these tools carry their `x-mcp-header` arguments as HTTP headers (2026-07-28, SEP-2243)."""
        if self.era == "modern":
            maps = {name: x_mcp_header_map(schema) for name, schema in header_schemas.items()}
            self._session._x_mcp_header_maps = maps

    async def listen_for_changes(self, is_open: asyncio.Event) -> None:
        """Have a modern child report list changes until the session ends; returns at once where there are none.

        `is_open` is set once the child has agreed. What it reports goes to `SessionEvents.lists_changed`.
        """
        tools, prompts, resources = map(self._announces_changes_of, ("tools", "prompts", "resources"))
        if self.era != "modern" or not (tools or prompts or resources):
            return
        async with listen(
            self._session,
            tools_list_changed=tools,
            prompts_list_changed=prompts,
            resources_list_changed=resources,
        ) as subscription:
            is_open.set()
            async for _ in subscription:
                pass

    async def listen_for_updates(self, uri: str, is_open: asyncio.Future[None]) -> None:
        """Have a modern child report updates of a resource, until this is cancelled or the session ends.

        `is_open` is set once the child has agreed. What it reports goes to `SessionEvents.resource_updated`.

        Raises:
            MCPError: the child's error.
        """
        async with listen(self._session, resource_subscriptions=[uri]) as subscription:
            if subscription.honored.resource_subscriptions:
                is_open.set_result(None)
                async for _ in subscription:
                    pass

    async def listen_for_tasks(
        self, task_ids: Sequence[str], caller: AnyCaller, on_notification: OnNotification
    ) -> None:
        """Have a modern child report its tasks, until this is cancelled or the child ends it.

        `on_notification` is told to which it agrees, and then of each change.

        Raises:
            MCPError: the child's error, or the connection ended.
        """
        self.serves(caller.account, caller.holder)
        stream = f"tasks-{next(_STREAMS)}"
        # No caller: it is open for long, and nothing else that the child says belongs to it.
        with self._requests.request(None, None) as request, self._incoming.listening(stream, on_notification):
            data, options = self._addressed(LISTEN, {"notifications": {"taskIds": list(task_ids)}}, request)
            data["params"]["_meta"][CLIENT_CAPABILITIES_META_KEY] = caller.capabilities
            options["request_id"] = stream
            await self._session._dispatcher.send_raw_request(
                LISTEN,
                data["params"],
                options,  # type: ignore[arg-type]
            )

    def _announces_changes_of(self, capability: str) -> bool:
        declared = self.capabilities.get(capability)
        return isinstance(declared, dict) and bool(declared.get("listChanged"))


@asynccontextmanager
async def open_session(
    transport: WatchedTransport,
    *,
    server_key: str,
    era: str,
    version: str,
    capabilities: Mapping[str, Any],
    events: SessionEvents,
) -> AsyncIterator[ChildSession]:
    """Connect and initialise. `capabilities` are the client's as the child is to see them.

    Raises:
        ChildServerError: it does not speak the era that it is set to.
    """
    requests = RequestsInFlight(lambda: events.sole_client)
    incoming = Incoming(server_key, requests, events)
    transport.on_list_changed = events.lists_changed
    transport.session_class = partial(RelayingSession, incoming=incoming, capabilities=capabilities)
    client: ProxyClient[WatchedTransport] = ProxyClient(
        transport,
        mode=_MODES[era],
        forward_incoming_headers=False,
        client_info=Implementation(name=PROGRAM, version=version),
        init_timeout=0,
        # FastMCP's forwarding handlers keep one slot for the last caller, so a shared session would ask the wrong
        # client. `Incoming` sees the child's messages before they could.
        roots=None,
        sampling_handler=None,
        elicitation_handler=None,
        log_handler=None,
        progress_handler=None,
    )
    # FastMCP would ask a modern child for every log message with every request.
    client._session_kwargs["log_level"] = None
    async with aclosing(SessionRequests(requests)) as asked, client:
        session = ChildSession(client, requests, incoming, asked)
        if era == "modern" and session.era != "modern":
            reason = f"it speaks MCP {session.protocol_version}, and nothing later; remove its setting `era`"
            raise ChildServerError(server_key, "initialization", reason)
        yield session
