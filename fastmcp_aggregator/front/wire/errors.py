"""JSON-RPC errors for clients: the one place that turns our exceptions into what crosses the wire."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable
from typing import Any, Literal

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, ErrorData, JSONRPCError

from fastmcp_aggregator.errors import ChildServerError, StartupError
from fastmcp_aggregator.naming.rules import NameRule
from fastmcp_aggregator.naming.suggestions import unknown_name_message, unknown_uri_message
from fastmcp_aggregator.protocol.json_rpc import SERVER_UNAVAILABLE
from fastmcp_aggregator.protocol.parts import DIGITS_LIMIT, PARTS_LIMIT

logger = logging.getLogger(__name__)

_TOO_MANY_PARTS = (
    f"the message has more than {PARTS_LIMIT} values, or a number of more than {DIGITS_LIMIT} digits, or many "
    "long ones; send it in several requests, or as text"
)
_ID = rb'"id"\s*:\s*(?:(\d{1,15})|"([\w.:-]{1,100})")\s*'
_ID_AT_HEAD = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?' + _ID + rb",")
_ID_AT_END = re.compile(rb",\s*" + _ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*\Z')
_EDGE = 256


def unavailable(error: ChildServerError, *, is_local: bool = True) -> MCPError:
    """Report a child that is unavailable, or whose connection was lost during the call. Its stderr stays in our log.

    `is_local`: the caller is on this machine, and may be told of its commands and files.
    """
    data: dict[str, Any] = {"server": error.server_key, "phase": error.phase, "retryIn": error.retry_in}
    if error.login_needed:
        data["loginNeeded"] = True
    reason = error.reason if is_local else error.public_reason
    return MCPError(SERVER_UNAVAILABLE, f"server {error.server_key!r}: {reason}", data)


def ending() -> MCPError:
    """Reject a request during graceful shutdown."""
    return MCPError(SERVER_UNAVAILABLE, "the aggregator is shutting down and takes no new requests")


def cut_off() -> MCPError:
    """Report a request that graceful shutdown has not waited for any longer."""
    reason = "whether its server has done what was asked is not known"
    return MCPError(SERVER_UNAVAILABLE, f"the aggregator has ended before this request was answered; {reason}")


def failed_start(error: StartupError, *, is_local: bool = True) -> MCPError:
    """Report a strict start that failed. `is_local` as for `unavailable`."""
    reasons = "; ".join(
        unavailable(failure, is_local=is_local).message if isinstance(failure, ChildServerError) else str(failure)
        for failure in error.failures
    )
    return MCPError(INTERNAL_ERROR, f"the aggregator did not start: {reasons}")


def unexpected(error: Exception, doing: str) -> MCPError:
    """Report an unhandled exception. Its text is not for clients: the log has it, with the traceback, under an id.

    `doing` is what failed, for the log.
    """
    incident = secrets.token_hex(4)
    logger.error("unhandled exception (id %s) in %s", incident, doing, exc_info=error, extra={"incident": incident})
    return MCPError(INTERNAL_ERROR, f"Internal error (id {incident})")


def unknown_name(kind: Literal["tool", "prompt"], name: str, rule: NameRule, candidates: Iterable[str]) -> MCPError:
    return MCPError(INVALID_PARAMS, unknown_name_message(kind, name, rule, candidates))


def unknown_uri(uri: str, candidates: Iterable[str] = (), with_key: Iterable[str] = ()) -> MCPError:
    """Report a URI that no child serves; `data.uri` echoes it (SEP-2164)."""
    return MCPError(INVALID_PARAMS, unknown_uri_message(uri, candidates, with_key), {"uri": uri[:2048]})


def invalid_params(what: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"Invalid request parameters: {what}")


def id_in_use() -> MCPError:
    """Refuse a request with the id of one that is not answered yet (2025-11-25, requests)."""
    reason = "a request with this id is not answered yet; each request of a session needs an id of its own"
    return MCPError(INVALID_REQUEST, reason)


def too_many_parts(message: bytes) -> JSONRPCError:
    """Reject a message of too many parts, which is not parsed; with its id where an edge of it tells."""
    found = _ID_AT_HEAD.match(message[:_EDGE]) or _ID_AT_END.search(message[-_EDGE:])
    number, text = found.groups() if found else (None, None)
    request_id = int(number) if number else text.decode() if text else None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=INVALID_REQUEST, message=_TOO_MANY_PARTS))
