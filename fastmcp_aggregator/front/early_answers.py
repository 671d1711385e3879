"""Early answers to the client on stdio: compared with what is served now, and made anew for the next start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.early.answers import digest_of
from fastmcp_aggregator.early.known_client import signature_in
from fastmcp_aggregator.errors import StartupError
from fastmcp_aggregator.front.fast_path.path import Declined, FastPath
from fastmcp_aggregator.front.fast_path.pipe import PipeFront
from fastmcp_aggregator.front.handshake import Handshakes
from fastmcp_aggregator.front.stdio.conversation import Conversation
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.methods import Era
from fastmcp_aggregator.routing.directory import Directory

_ERA_OF: Mapping[str, Era] = {"initialize": "legacy", "server/discover": "modern"}
"""The era of clients, by their first method."""
_QUIET = 1.0
"""Seconds to collect changes."""

Keep = Callable[[str, Mapping[str, bytes]], None]
"""Keeps the results for a client with this signature, by method. Never blocks."""


def _is_unsettled(child: Child) -> bool:
    """True if the list of a child now is not that of the next start: it has left the lists for as long as it fails, or
    is still to be listed. One that has never been up is not in the lists, then as now.
    """
    if child.catalogue is None:
        return not child.settled.is_set()
    return not child.is_listed


class EarlyAnswers:
    """The first answers to one client, as they would be now."""

    def __init__(
        self,
        path: FastPath,
        front: PipeFront,
        directory: Directory,
        handshakes: Handshakes,
        conversation: Conversation,
        *,
        strict: bool,
    ) -> None:
        """Strict, lists are not answered early."""
        self._path = path
        self._front = front
        self._directory = directory
        self._handshakes = handshakes
        self._conversation = conversation
        self._strict = strict

    async def stale(self, answered: Mapping[str, str]) -> frozenset[Kind]:
        """The kinds of which the client was listed something else than there is, by digests of what it was listed.

        Raises:
            StartupError: strict, and the start failed.
        """
        if not answered:
            return frozenset()
        await self._conversation.introduced.wait()
        await self._directory.ready()
        methods = {kind: spec.list_method for kind, spec in SPECS.items() if spec.list_method in answered}
        return frozenset([kind for kind, method in methods.items() if await self._digest_of(kind) != answered[method]])

    async def keep_up(self, keep: Keep) -> None:
        """Keep them, and again when they change, until this is cancelled."""
        await self._conversation.introduced.wait()
        with suppress(StartupError):
            await self._directory.ready()
            while True:
                self._directory.invalidated.clear()
                await self._keep(keep)
                await self._directory.invalidated.wait()
                await asyncio.sleep(_QUIET)

    async def _keep(self, keep: Keep) -> None:
        first = self._conversation.first
        signature = None if first is None else signature_in(first.method, first.params or {})
        children = self._directory.children
        if first is None or signature is None or any(map(_is_unsettled, children)):
            return
        answers = {
            method: raw_json.encode({**result, **self._handshakes.present(_ERA_OF[method])})
            for method, result in self._conversation.introduction.items()
        }
        if not self._strict:
            lists = {spec.list_method: await self._listed(kind) for kind, spec in SPECS.items()}
            answers |= {method: listed for method, listed in lists.items() if listed is not None}
        keep(signature, answers)

    async def _digest_of(self, kind: Kind) -> str | None:
        listed = await self._listed(kind)
        return None if listed is None else digest_of(listed)

    async def _listed(self, kind: Kind) -> bytes | None:
        caller, first = self._front.caller, self._conversation.first
        if caller is None or first is None:
            return None
        request: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": SPECS[kind].list_method}
        if caller.is_modern:
            request["params"] = {"_meta": (first.params or {}).get("_meta")}
        line = raw_json.read_request(json.dumps(request).encode())
        try:
            return (await self._path.listed(line, caller, raw_json.encode)).whole()
        except (Declined, *raw_json.Malformed):
            return None
