"""One request of a program that speaks no MCP: the path of a modern client's, without its transport.

What the child says on the way (progress, log messages) has nowhere to go. What the program declares in the `_meta` of
its request counts: with `elicitation` a question is its answer, with the extension for tasks a task may be. Without, a
question gets the answer that this client cannot be asked.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION
from starlette.requests import Request

_CLIENT = {"name": "fastmcp-aggregator-json", "version": "1"}
ENVELOPE: Mapping[str, Any] = {
    PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_META_KEY: _CLIENT,
    CLIENT_CAPABILITIES_META_KEY: {},
}
"""The fields of a message that such a program does not send."""

REQUEST_ID = "X-Request-Id"
"""The header with the id of a request, in which it may bring one, and gets it back."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,128}")


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The id that a request of such a program brings, or a new one."""
    told = next((value for name, value in headers if name == b"x-request-id"), b"")
    return told.decode() if _REQUEST_ID.fullmatch(told) else secrets.token_hex(8)


def enveloped(meta: Any) -> dict[str, Any]:
    """The `_meta` of a request of such a program as a modern client's; what it declares that it can do counts."""
    if not isinstance(meta, Mapping):
        return dict(ENVELOPE)
    declared = meta.get(CLIENT_CAPABILITIES_META_KEY)
    return {**meta, **ENVELOPE, **({CLIENT_CAPABILITIES_META_KEY: declared} if isinstance(declared, Mapping) else {})}


async def exchange(
    server: Server[Any], method: str, params: Mapping[str, Any], *, request_id: str, request: Request | None = None
) -> dict[str, Any]:
    """Serve one request by an app's SDK server. `request` is the HTTP request that it came with.

    Raises:
        MCPError: the error that an MCP client would get.
        pydantic.ValidationError: the parameters have not the shape that the method prescribes.
    """
    envelope = enveloped(params.get("_meta"))
    connection = Connection.from_envelope(LATEST_MODERN_VERSION, _CLIENT, {})
    context = _OneWay(message_metadata=ServerMessageMetadata(request_context=request), request_id=request_id)
    runner = ServerRunner(server, connection, {})
    try:
        return await runner.on_request(context, method, {**params, "_meta": envelope})
    finally:
        del runner.on_request  # which refers to the runner, so that only a garbage collection would find both
        await aclose_shielded(connection)


@dataclass
class _OneWay:
    """The dispatch context of a request whose client gets nothing but the answer."""

    message_metadata: ServerMessageMetadata
    request_id: str
    transport: TransportContext = field(default_factory=lambda: TransportContext(kind="json", can_send_request=False))
    can_send_request: bool = False
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        return

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        return
