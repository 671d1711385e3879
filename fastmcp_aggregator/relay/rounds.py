"""One request on its way from a caller to a child and back, across the protocol eras.

A plain request crosses the eras as it is. One over which the child needs something from the client is bridged:

| the child | the client | what happens |
|---|---|---|
| legacy, sends a request | legacy | the client is sent the request; its answer goes back to the child |
| legacy, sends a request | modern | the client gets an `InputRequiredResult`, the child's call is held open |
| modern, answers `InputRequiredResult` | modern | passed on |
| modern, answers `InputRequiredResult` | legacy | the client is sent each request, the child gets the answers |
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Protocol

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.instances import Instances
from fastmcp_aggregator.children.session.incoming import QUESTIONS
from fastmcp_aggregator.children.session.ownership import Owner
from fastmcp_aggregator.relay.logging import Logging
from fastmcp_aggregator.relay.pending_calls import HeldCall, HeldCalls, is_ours, is_over
from fastmcp_aggregator.relay.remote_rounds import Round, answered, continued_elsewhere, round_of
from fastmcp_aggregator.replicas.peers import Alone, Message, Peers, Say

_CONNECTION_META = frozenset(
    {
        PROTOCOL_VERSION_META_KEY,
        CLIENT_INFO_META_KEY,
        CLIENT_CAPABILITIES_META_KEY,
        LOG_LEVEL_META_KEY,
        # The session puts a token of its own in its place, so that two callers' tokens never meet.
        "progressToken",
    }
)
"""Request `_meta` that describes the caller's connection to us; the child's session has its own."""

MODERN_PARAMS = ("inputResponses", "requestState")
"""What a client adds to a request when it comes back with answers."""
_ROUNDS = 10
"""How often a modern child may ask a legacy client before the call is given up, as in the SDKs' clients."""
_PAUSE = 0.1
"""Seconds before a child is asked again that has asked nothing of the client."""

Result = dict[str, Any]
Params = Mapping[str, Any]


class Forwards(Protocol):
    """What sends a caller's request to a child; see `Forwarder.forward`."""

    async def forward(
        self, ctx: ServerRequestContext[Any, Any], child: Child, params: Params, address: Mapping[str, Any]
    ) -> Result: ...


class Forwarder:
    """Forwards requests for callers of either era. Owned by one run of the aggregator."""

    def __init__(self, instances: Callable[[], Instances], logging: Logging, peers: Peers | None = None) -> None:
        self._instances = instances
        self._peers = Alone() if peers is None else peers
        self._held = HeldCalls(lambda: self._peers.id)
        self._logging = logging

    async def forward(
        self, ctx: ServerRequestContext[Any, Any], child: Child, params: Params, address: Mapping[str, Any]
    ) -> Result:
        """Send the request that is served in `ctx` to a child, with the child's own name or URI in `address`.

        Raises:
            ChildServerError: the child cannot be asked, or was lost while it was asked.
            MCPError: the child's own error, unchanged, or why the caller cannot be asked what the child needs.
        """
        caller = Caller(ctx)
        try:
            keeper = self._held.keeper(params.get("requestState")) if caller.is_modern else None
            call = None if keeper else self._resumed(caller, child, ctx.method, params)
            if keeper:
                round_ = _round(caller, child, ctx.method, params)
                result = await continued_elsewhere(self._peers, keeper, round_, caller)
            elif call is not None:
                result = await self._round(call, caller.principal, partial(_fingerprint, child, ctx.method, params))
            else:
                result = await self._begin(caller, child, ctx.method, params, address)
            await caller.told()
            return result
        finally:
            caller.close()

    async def answer(self, question: Message, say: Say) -> Message:
        """The round of a call that is held here, for a client that has come back to another replica; see `Peers`."""
        return await answered(self._continued(round_of(question), say))

    async def _continued(self, round_: Round, say: Say) -> Result:
        call = self._held.take(round_.state, round_.principal, lambda: round_.request)
        if call is None:
            raise is_over()
        call.resume(round_.listener(say), round_.answers)
        return await self._round(call, round_.principal, lambda: round_.request)

    def close(self) -> None:
        """Give up what waits for clients."""
        self._held.close()

    def _resumed(self, caller: Caller, child: Child, method: str, params: Params) -> HeldCall | None:
        """The call that a client comes back to; it runs on the instance where it began."""
        state = params.get("requestState")
        if not caller.is_modern or not is_ours(state):
            return None
        answers = _given_answers(params)
        call = self._held.take(state, caller.principal, partial(_fingerprint, child, method, params))
        if call is not None:
            call.resume(caller, answers)
        return call

    async def _begin(
        self, caller: Caller, child: Child, method: str, params: Params, address: Mapping[str, Any]
    ) -> Result:
        serving = await self._instances().serving(child, caller)
        try:
            return await self._forward(caller, serving, method, params, address)
        finally:
            self._instances().released(serving)

    async def _forward(
        self, caller: Caller, child: Child, method: str, params: Params, address: Mapping[str, Any]
    ) -> Result:
        if not caller.is_modern:
            return await self._for_legacy_caller(caller, child, method, params, address)
        if child.session is not None and child.session.era == "modern":
            return await send(child, method, params, address, caller)
        if caller.log_level is not None:
            await self._logging.at_least(child, caller.log_level)
        _given_answers(params)
        if params.get("requestState") is not None and child.session is not None:
            raise is_over()  # a legacy child has no states of its own
        call = HeldCall(caller, lambda owner: self._send_held(child, method, params, address, owner))
        return await self._round(call, caller.principal, partial(_fingerprint, child, method, params))

    async def _round(self, call: HeldCall, principal: Hashable, request: Callable[[], Hashable]) -> Result:
        """The child's result, or what it asks first; then the call is held until the client comes back."""
        is_held = False
        try:
            result = await call.round()
            if result is not None:
                return result
            state = self._held.keep(call, principal, request)
            is_held = True
            return {"resultType": "input_required", "inputRequests": call.questions(), "requestState": state}
        finally:
            call.leave()
            if not is_held:
                call.end()

    async def _for_legacy_caller(
        self, caller: Caller, child: Child, method: str, params: Params, address: Mapping[str, Any]
    ) -> Result:
        """Ask the child, and the caller whatever the child wants to know first."""
        for _ in range(_ROUNDS):
            result = await send(child, method, params, address, caller)
            if result.get("resultType") != "input_required":
                return result
            params = {name: value for name, value in params.items() if name not in MODERN_PARAMS}
            if result.get("requestState") is not None:
                params["requestState"] = result["requestState"]
            questions = result.get("inputRequests")
            if isinstance(questions, Mapping) and questions:
                params["inputResponses"] = await _answers(caller, questions)
            else:
                await asyncio.sleep(_PAUSE)
        raise MCPError(INTERNAL_ERROR, f"server {child.key!r} asked for input {_ROUNDS} times over one request")

    async def _send_held(
        self, child: Child, method: str, params: Params, address: Mapping[str, Any], owner: Owner
    ) -> Result:
        """A call that may outlive the request with which it began."""
        try:
            return await send(child, method, params, address, owner)
        finally:
            self._instances().released(child)


async def send(child: Child, method: str, params: Params, address: Mapping[str, Any], owner: Owner | None) -> Result:
    """Send a request to a child once; its result as it came.

    Raises:
        ChildServerError: the child cannot be asked, or was lost while it was asked.
        MCPError: the child's own error, unchanged.
    """
    forwarded = {**params, **address}
    # The aggregator declares no tasks, and then this is to be ignored (2025-11-25, tasks): nobody could ask for the
    # task that the child would make of it.
    forwarded.pop("task", None)
    meta = forwarded.pop("_meta", None) or {}
    if kept := {key: value for key, value in meta.items() if key not in _CONNECTION_META}:
        forwarded["_meta"] = kept
    if child.session is not None and child.session.era == "legacy":
        for name in MODERN_PARAMS:
            forwarded.pop(name, None)
    return await child.request(method, forwarded, owner=owner)


def _given_answers(params: Params) -> Mapping[str, Any]:
    """The answers with which a client comes back, by name.

    Raises:
        MCPError: they are no object.
    """
    answers = params.get("inputResponses")
    if answers is not None and not isinstance(answers, Mapping):
        raise MCPError(INVALID_PARAMS, "Invalid request parameters: inputResponses: must be an object")
    return answers or {}


async def _answers(caller: Caller, questions: Mapping[str, Any]) -> dict[str, Any]:
    """The client's answers to all questions, by name; the first that it refuses ends the others."""
    asking = [asyncio.ensure_future(_answer(caller, question)) for question in questions.values()]
    try:
        return dict(zip(questions, await asyncio.gather(*asking), strict=True))
    finally:
        for task in asking:
            task.cancel()


async def _answer(caller: Caller, question: Any) -> Result:
    method = question.get("method") if isinstance(question, Mapping) else None
    params = (question.get("params") or {}) if isinstance(question, Mapping) else None
    if not isinstance(method, str) or method not in QUESTIONS or not isinstance(params, Mapping):
        raise MCPError(INTERNAL_ERROR, f"the server asked for what no client can be asked: {method!r:.100}")
    return await caller.ask(method, params, _unheard)


async def _unheard(progress: float, total: float | None, message: str | None) -> None:
    """Nobody waits for progress on a question that is part of a result."""


def _round(caller: Caller, child: Child, method: str, params: Params) -> Round:
    request = _fingerprint(child, method, params)
    return Round(params["requestState"], caller.principal, request, _given_answers(params))


def _fingerprint(child: Child, method: str, params: Params) -> tuple[str, str, str]:
    """What must be the same when a client comes back to a call."""
    asked = {key: value for key, value in params.items() if key not in ("_meta", *MODERN_PARAMS)}
    text = json.dumps(asked, sort_keys=True, default=str)
    return child.key, method, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
