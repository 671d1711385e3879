"""What crosses the wire when something goes wrong: the one place that turns our errors into JSON-RPC errors."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from typing import Literal

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from fastmcp_aggregator.errors import ChildServerError, StartupError
from fastmcp_aggregator.naming import NameRule, unknown_name_message, unknown_uri_message

logger = logging.getLogger(__name__)

SERVER_UNAVAILABLE = -32000
"""JSON-RPC: the server cannot be asked now. `data` names it, and says when it is tried again, in seconds."""


def unavailable(error: ChildServerError, *, is_local: bool = True) -> MCPError:
    """A child that cannot be asked, or was lost while it was asked. Its stderr stays in our log.

    `is_local`: the caller is on this machine, and may be told of its commands and files.
    """
    data = {"server": error.server_key, "phase": error.phase, "retryIn": error.retry_in}
    reason = error.reason if is_local else error.public_reason
    return MCPError(SERVER_UNAVAILABLE, f"server {error.server_key!r}: {reason}", data)


def ending() -> MCPError:
    """The program has been told to end, and takes no new work."""
    return MCPError(SERVER_UNAVAILABLE, "the aggregator is ending and takes no new requests")


def failed_start(error: StartupError, *, is_local: bool = True) -> MCPError:
    """A strict start that ended. `is_local`: see `unavailable`."""
    reasons = "; ".join(
        unavailable(failure, is_local=is_local).message if isinstance(failure, ChildServerError) else str(failure)
        for failure in error.failures
    )
    return MCPError(INTERNAL_ERROR, f"the aggregator did not start: {reasons}")


def unexpected(error: Exception, doing: str) -> MCPError:
    """An error that nobody has foreseen. What it says may be meant for nobody: the log has it, under an id.

    `doing` is what failed, for the log.
    """
    incident = secrets.token_hex(4)
    logger.error("internal error (id %s) in %s", incident, doing, exc_info=error, extra={"incident": incident})
    return MCPError(INTERNAL_ERROR, f"Internal error (id {incident})")


def unknown_name(kind: Literal["tool", "prompt"], name: str, rule: NameRule, candidates: Iterable[str]) -> MCPError:
    """No component has this name."""
    return MCPError(INVALID_PARAMS, unknown_name_message(kind, name, rule, candidates))


def unknown_uri(uri: str, candidates: Iterable[str]) -> MCPError:
    """No child serves this address; `data.uri` echoes it (SEP-2164)."""
    return MCPError(INVALID_PARAMS, unknown_uri_message(uri, candidates), {"uri": uri[:2048]})


def invalid_params(what: str) -> MCPError:
    """The request is not of the shape that the protocol prescribes."""
    return MCPError(INVALID_PARAMS, f"Invalid request parameters: {what}")
