"""What kind of request has come to the MCP endpoints of an app: told from its route and its content, never from what
nobody checks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto

from mcp_types import RequestId
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import Scope

from fastmcp_aggregator.library_internals import route_path
from fastmcp_aggregator.protocol.methods import LISTEN
from fastmcp_aggregator.protocol.raw_json import Malformed, read_envelope

_LISTEN_BYTES = 256 * 1024
"""What opens a stream is no longer than this; what is, is a request like others."""


class RequestKind(Enum):
    """What a request asks for."""

    WORK = auto()
    OPENING = auto()
    """The same, and the SDK opens a session for it."""
    MESSAGE = auto()
    """Nothing: it brings an answer or a notification into a session."""
    STREAM = auto()
    """A stream that never finishes by itself (2026-07-28)."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The paths of an app's MCP endpoint, and of where clients of its SSE transport post their messages."""

    mcp: str
    messages: str

    def kind_of(self, scope: Scope, content: bytes) -> RequestKind:
        """What a request with this body asks for."""
        if self.is_of_session(scope) and not _may_be_request(content):
            return RequestKind.MESSAGE
        if self._only_listens(scope, content):
            return RequestKind.STREAM
        return RequestKind.OPENING if self._may_open_session(scope) else RequestKind.WORK

    def is_of_session(self, scope: Scope) -> bool:
        """Whether a request brings a message into a session: what is no JSON-RPC request there asks for no work.

        The session's own endpoint checks that it exists and whose it is.
        """
        path = route_path(scope)
        return path == self.messages or (path == self.mcp and _header(scope, b"mcp-session-id") is not None)

    def session_of(self, scope: Scope) -> bytes:
        """What names the session into which a request brings a message."""
        found: bytes = _header(scope, b"mcp-session-id") or scope["query_string"]
        return found

    def request_in_session(self, scope: Scope, content: bytes) -> tuple[bytes, RequestId] | None:
        """The session and the id of a request that brings both; None: it is another, or the transport refuses it."""
        session = _header(scope, b"mcp-session-id")
        if session is None or route_path(scope) != self.mcp or _is_modern(scope):
            return None
        try:
            request_id = read_envelope(content).id
        except Malformed:
            return None
        return None if request_id is None else (session, request_id)

    def is_handshake(self, content: bytes) -> bool:
        """Whether a body is a handshake. Where there are no sessions, others come without one, too."""
        return _method_of(content) in (None, "initialize")

    def may_listen(self, scope: Scope) -> bool:
        """Whether a GET may open a stream that only listens, as those of the MCP endpoint and below it do."""
        path = route_path(scope)
        return path == self.mcp or path.startswith((f"{self.mcp.rstrip('/')}/", "/dashboard/"))

    def _may_open_session(self, scope: Scope) -> bool:
        """Whether the SDK opens a session for a POST: it belongs to none, and to no client that has none."""
        return route_path(scope) == self.mcp and _header(scope, b"mcp-session-id") is None and not _is_modern(scope)

    def _only_listens(self, scope: Scope, content: bytes) -> bool:
        return (
            route_path(scope) == self.mcp
            and _header(scope, b"mcp-method") == LISTEN.encode()
            and _is_modern(scope)
            and len(content) <= _LISTEN_BYTES
            and _method_of(content) == LISTEN
        )


def _may_be_request(content: bytes) -> bool:
    """Whether a body may be a JSON-RPC request; false only if it is something else for certain.

    Names may be written with escapes, and UTF-16 and UTF-32, which are read too, have NULs.
    """
    return b"\\u" in content or b"\0" in content or (b'"method"' in content and b'"id"' in content)


def _is_modern(scope: Scope) -> bool:
    """Whether the SDK takes a request for one of 2026-07-28 or later."""
    version = _header(scope, b"mcp-protocol-version")
    return version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS


def _method_of(content: bytes) -> str | None:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return None
    method = message.get("method") if isinstance(message, dict) else None
    return method if isinstance(method, str) else None


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)
