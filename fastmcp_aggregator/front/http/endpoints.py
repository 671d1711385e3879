"""The kinds of request at the MCP endpoints of an app, told from route and content, never from what nobody checks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from mcp_types import RequestId
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import Scope

from fastmcp_aggregator.front.http.resume.event_store import SESSION_ID
from fastmcp_aggregator.library_internals import route_path
from fastmcp_aggregator.protocol.methods import LISTEN
from fastmcp_aggregator.protocol.raw_json import Malformed, read_envelope

_LISTEN_BYTES = 256 * 1024
"""Longer requests are not searched for `subscriptions/listen`, and count as ordinary ones."""
_LISTEN = LISTEN.encode()
WHITE_SPACE = b" \t"
"""Optional white space around a field value (RFC 9110, 5.6.3)."""
HEAD = "fastmcp_aggregator.head"
"""The key of a request's scope for its `Head`, once a layer has looked at it."""


class Head:
    """The header fields of an HTTP request by name, which all layers look at."""

    __slots__ = ("fields", "first", "has_repeated")

    def __init__(self, fields: Sequence[tuple[bytes, bytes]]) -> None:
        self.fields = fields
        self.first = dict(reversed([*fields]))
        """The first value of each name."""
        self.has_repeated = len(self.first) < len(fields)
        """True if a name is there twice."""


def head_of(scope: Scope) -> Head:
    """The head of a request: made once, and again once a layer has put other fields in place of those that came."""
    head: Head | None = scope.get(HEAD)
    if head is None or head.fields is not scope["headers"]:
        head = scope[HEAD] = Head(scope["headers"])
    return head


class RequestKind(Enum):
    """The purpose of a request."""

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

    def kind_of(self, scope: Scope, content: bytes) -> tuple[RequestKind, tuple[bytes, RequestId] | None]:
        """The purpose of a request with this body; of one in a session of the transport, that session and its id."""
        path, headers = route_path(scope), head_of(scope).first
        is_mcp, session = path == self.mcp, headers.get(SESSION_ID)
        if (path == self.messages or (is_mcp and session is not None)) and not _may_be_request(content):
            return RequestKind.MESSAGE, None
        if not is_mcp:
            return RequestKind.WORK, None
        if _is_modern(headers):
            return RequestKind.STREAM if _only_listens(headers, content) else RequestKind.WORK, None
        # The SDK opens a session for what belongs to none, and to no client that has none.
        if session is None:
            return RequestKind.OPENING, None
        request_id = _id_of(content)
        return RequestKind.WORK, None if request_id is None else (session, request_id)

    def is_of_session(self, scope: Scope) -> bool:
        """True if a request brings a message into a session: anything there but a JSON-RPC request asks for no work.

        The session's own endpoint checks that it exists and whose it is.
        """
        path = route_path(scope)
        return path == self.messages or (path == self.mcp and SESSION_ID in head_of(scope).first)

    def session_of(self, scope: Scope) -> bytes:
        """The name of the session into which a request brings a message."""
        found: bytes = head_of(scope).first.get(SESSION_ID) or scope["query_string"]
        return found

    def is_handshake(self, content: bytes) -> bool:
        """True if a body is a handshake. Where there are no sessions, others come without one, too."""
        return _method_of(content) in (None, "initialize")

    def may_listen(self, scope: Scope) -> bool:
        """True if a GET may open a stream that only listens, as at the MCP endpoint and below it."""
        path = route_path(scope)
        return path == self.mcp or path.startswith((f"{self.mcp.rstrip('/')}/", "/dashboard/"))


def _may_be_request(content: bytes) -> bool:
    """True if a body may be a JSON-RPC request; false only if it is something else for certain.

    Names may be written with escapes, and UTF-16 and UTF-32, which are read too, have NULs.
    """
    return b"\\u" in content or b"\0" in content or (b'"method"' in content and b'"id"' in content)


def _id_of(content: bytes) -> RequestId | None:
    try:
        return read_envelope(content).id
    except Malformed:
        return None


def _is_modern(headers: Mapping[bytes, bytes]) -> bool:
    """True if the SDK takes a request for one of 2026-07-28 or later."""
    version = headers.get(b"mcp-protocol-version")
    return version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS


def _only_listens(headers: Mapping[bytes, bytes], content: bytes) -> bool:
    is_said = headers.get(b"mcp-method") == _LISTEN and len(content) <= _LISTEN_BYTES
    return is_said and _method_of(content) == LISTEN


def _method_of(content: bytes) -> str | None:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return None
    method = message.get("method") if isinstance(message, dict) else None
    return method if isinstance(method, str) else None
