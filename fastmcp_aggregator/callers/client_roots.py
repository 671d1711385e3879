"""The roots of a legacy client: asked of it once, and again when it has said that they have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED

from fastmcp_aggregator.callers.caller import Caller, ignore_progress
from fastmcp_aggregator.protocol.methods import ROOTS_LIST

logger = logging.getLogger(__name__)

_KEY = "fastmcp_aggregator.roots"
_ASK_TIMEOUT = 10.0
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Roots:
    """A set of roots: equal to another if the addresses are the same. `listed` has them as the client names them."""

    addresses: frozenset[str]
    listed: tuple[Mapping[str, Any], ...] = field(compare=False)

    def as_result(self) -> dict[str, Any]:
        """The answer to a server that asks for them."""
        return {"roots": [dict(root) for root in self.listed]}


class _Known:
    """The known roots of one client; a new edition for each change."""

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.edition = 0
        self.told_in: int | None = None
        self.roots: Roots | None = None


async def roots_of(caller: Caller) -> Roots | None:
    """The roots of the caller's client; None: it has declared none, tells none, or speaks of them call by call.

    Raises:
        MCPError: it has left.
    """
    if caller.is_modern or "roots" not in caller.capabilities:
        return None
    known = _known(caller.connection)
    async with known.asking:
        if known.told_in == known.edition:
            return known.roots
        edition, roots = known.edition, await _asked(caller)
        known.told_in, known.roots = edition, roots
        return roots


def roots_are_current(caller: Caller) -> bool:
    """True if the last result of `roots_of` is still so: the client may have announced a change meanwhile."""
    if caller.is_modern or "roots" not in caller.capabilities:
        return True
    known = _known(caller.connection)
    return known.told_in == known.edition


def roots_have_changed(connection: Connection) -> None:
    """The client says so: it is asked again when they are needed next."""
    _known(connection).edition += 1


def _known(connection: Connection) -> _Known:
    known = connection.state.get(_KEY)
    if not isinstance(known, _Known):
        known = connection.state[_KEY] = _Known()
    return known


async def _asked(caller: Caller) -> Roots | None:
    try:
        async with asyncio.timeout(_ASK_TIMEOUT):
            result = await caller.ask(ROOTS_LIST.name, {}, ignore_progress)
    except (MCPError, TimeoutError) as error:
        if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
            raise  # it has left: nothing is to be started for it
        logger.debug("a client does not tell its roots: %s", type(error).__name__)
        return None
    listed = result.get("roots")
    if not isinstance(listed, list):
        return None
    roots = [root for root in listed[:_MOST] if isinstance(root, Mapping) and isinstance(root.get("uri"), str)]
    return Roots(frozenset(root["uri"] for root in roots), tuple(roots))
