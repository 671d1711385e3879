"""The held MCP session of one child: raw requests in the child's own era.

Requests and results travel as plain JSON objects. The SDK's typed methods would parse every result into models
that drop what they don't know and cost several times the forward itself. The private parts of the SDK's session and of
FastMCP's client that this needs (`_dispatcher`, `_stamp`, `_x_mcp_header_maps`; `_session_kwargs`) are touched in this
file only, and `tests/children/test_children_sdk_seams.py` fails when they change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from fastmcp.server.providers.proxy import ProxyClient
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import x_mcp_header_map
from mcp_types import CONNECTION_CLOSED, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fastmcp_aggregator.children.http_failures import HttpFailure
from fastmcp_aggregator.children.remote import RemoteFailure
from fastmcp_aggregator.children.transports import LIST_CHANGED, WatchedTransport

Era = Literal["legacy", "modern"]
OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
OnListChanged = Callable[[], None]

_TELLING = frozenset({"auth", "status", "broken"})
"""The kinds of failure that can be of one request or of all."""
_PROBE_BOUND = 5.0
"""Seconds that a failed request waits for the answer to a probe."""
_MODES = {"auto": "auto", "legacy": "legacy", "modern": MODERN_PROTOCOL_VERSIONS[-1]}


class ChildSession:
    """An initialised session. `lost` is set when it can no longer be used."""

    def __init__(self, client: ProxyClient[WatchedTransport]) -> None:
        self._session = client.session
        self.lost = client.transport.lost
        self._transport = client.transport
        self._probing = asyncio.Lock()
        self.protocol_version = client.protocol_version or ""
        self.era: Era = "modern" if self.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
        self.instructions = client.instructions
        capabilities = client.server_capabilities
        self.capabilities: dict[str, Any] = (
            capabilities.model_dump(by_alias=True, mode="json", exclude_none=True) if capabilities else {}
        )

    async def request(
        self, method: str, params: Mapping[str, Any] | None, *, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and wait for its result, as the JSON object that the child sent.

        There is no deadline here. Cancelling the caller cancels the request at the child.

        Raises:
            RemoteFailure: a remote child has not answered, or nothing that can be used.
            MCPError: the child's error unchanged, or -32000 when the connection ended (see `is_over`).
        """
        data: dict[str, Any] = {"method": method}
        if params is not None:
            data["params"] = dict(params)
        options: dict[str, Any] = {"on_progress": on_progress} if on_progress is not None else {}
        self._session._stamp(data, options)  # type: ignore[arg-type]
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

    def is_over(self, error: MCPError) -> bool:
        """Whether a request failed because the connection ended, and not because the child said so."""
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

    def mirror_headers(self, tool_name: str, input_schema: Mapping[str, Any]) -> None:
        """Let calls of this tool carry their `x-mcp-header` arguments as HTTP headers (2026-07-28, SEP-2243)."""
        if self.era == "modern" and (headers := x_mcp_header_map(dict(input_schema))):
            self._session._x_mcp_header_maps[tool_name] = headers

    async def listen_for_changes(self, on_change: OnListChanged) -> None:
        """Follow a modern child's list changes until the session ends; returns at once where there are none."""
        tools, prompts, resources = map(self._announces_changes_of, ("tools", "prompts", "resources"))
        if self.era != "modern" or not (tools or prompts or resources):
            return
        async with listen(
            self._session,
            tools_list_changed=tools,
            prompts_list_changed=prompts,
            resources_list_changed=resources,
        ) as subscription:
            async for _ in subscription:
                on_change()

    def _announces_changes_of(self, capability: str) -> bool:
        declared = self.capabilities.get(capability)
        return isinstance(declared, dict) and bool(declared.get("listChanged"))


@asynccontextmanager
async def open_session(
    transport: WatchedTransport, *, era: str, version: str, on_list_changed: OnListChanged
) -> AsyncIterator[ChildSession]:
    """Connect and initialise. The child sees a client without sampling, elicitation and roots."""

    transport.on_list_changed = on_list_changed

    async def on_message(message: Any) -> None:
        if getattr(message, "method", None) in LIST_CHANGED:
            on_list_changed()

    client: ProxyClient[WatchedTransport] = ProxyClient(
        transport,
        mode=_MODES[era],
        forward_incoming_headers=False,
        client_info=Implementation(name="fastmcp-aggregator", version=version),
        message_handler=on_message,
        init_timeout=0,
        # FastMCP's forwarding handlers keep one slot for the last caller, so a shared session would ask the wrong
        # client. Without them a child is told that nobody can be asked.
        roots=None,
        sampling_handler=None,
        elicitation_handler=None,
        log_handler=_ignore_log,
        progress_handler=None,
    )
    # FastMCP would ask a modern child for every log message with every request; nobody here hears them.
    client._session_kwargs["log_level"] = None
    async with client:
        yield ChildSession(client)


async def _ignore_log(_: Any) -> None:
    """A log message without a caller it belongs to goes to nobody."""


async def wait_first(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Return when the first of these events is set, or after so many seconds."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=timeout)
    finally:
        for wait in waits:
            wait.cancel()
