"""Rounds: a call to a child across the protocol eras, with whatever the child asks the caller first.

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
from collections.abc import Awaitable, Hashable, Mapping
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.callers.caller import Caller, ignore_progress
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.session.in_flight import AnyCaller
from fastmcp_aggregator.children.session.incoming import MOST_OF_REQUEST
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.protocol.json_rpc import Params, Result
from fastmcp_aggregator.protocol.methods import SERVER_REQUESTS
from fastmcp_aggregator.relay.child_log_levels import ChildLogLevels
from fastmcp_aggregator.relay.instances.instances import Instances
from fastmcp_aggregator.relay.pending_calls import Notify, PendingCall, PendingCalls, call_is_over
from fastmcp_aggregator.relay.remote_rounds import Round, continue_remotely, notify_replica, round_from, to_message
from fastmcp_aggregator.replicas.peers import Message, OnMessage, Peers

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

RETRY_PARAMS = ("inputResponses", "requestState")
"""The parameters that a client adds to a request when it comes back with answers."""
_ROUNDS = 10
"""How often a modern child may ask a legacy client before the call is given up, as in the SDKs' clients."""
_RETRY_PAUSE = 0.1
"""Seconds before a child is asked again that has asked nothing of the client."""


class Rounds:
    """Asks children on behalf of callers of either era, in as many rounds as their questions take."""

    def __init__(self, log_levels: ChildLogLevels, instances: Instances, peers: Peers, timings: Timings) -> None:
        self._peers = peers
        self._instances = instances
        self._pending = PendingCalls(timings, peers)
        self._log_levels = log_levels

    async def ask(self, child: Child, call: Call) -> Result:
        """Send a call to a child, or to an instance of it; the result, or what the caller is to answer first.

        Raises:
            ChildServerError: the child cannot be asked, or was lost while it was asked.
            MCPError: the child's own error, unchanged, or why the caller cannot be asked what the child needs.
        """
        caller, params = call.caller, call.params
        if "requestState" in params and (state := call.continues) is not None:
            return await self._resume(call, state)
        if caller.is_modern and (child.session is None or child.session.era == "legacy"):
            if LOG_LEVEL_META_KEY in (params.get("_meta") or ()) and caller.log_level is not None:
                await self._log_levels.ensure(child, caller.log_level)
            _input_responses(params)
            if params.get("requestState") is not None and child.session is not None:
                raise call_is_over()  # a legacy child has no states of its own
            pending = PendingCall(caller, partial(self._send_pending, child, call))
            return await self._pending.round(pending, partial(_identity, call))
        for _ in range(_ROUNDS):
            result = await send(child, call, params, caller)
            if caller.is_modern or result.get("resultType") != "input_required":
                return result
            params = {name: value for name, value in params.items() if name not in RETRY_PARAMS}
            if result.get("requestState") is not None:
                params["requestState"] = result["requestState"]
            questions = result.get("inputRequests")
            if isinstance(questions, Mapping) and questions:
                params["inputResponses"] = await answers_to(caller, questions)
            else:
                await asyncio.sleep(_RETRY_PAUSE)
        raise MCPError(INTERNAL_ERROR, f"server {child.key!r} asked for input {_ROUNDS} times over one request")

    async def _resume(self, call: Call, state: str) -> Result:
        """Continue the pending call of this state, on the instance where it began.

        Raises:
            MCPError: the call is over, or is not this caller's.
        """
        round_, notify = Round(state, *_identity(call), _input_responses(call.params)), call.caller.notify
        if replica := self._pending.owner_replica(state):
            return await continue_remotely(self._peers, replica, round_, notify)
        return await self._resumed(round_, notify, call.caller.request_id)

    def cancel(self, caller: Caller, request_id: str) -> None:
        """A modern client cancels a request; a call that waits for it to come back after that one is given up."""
        self._pending.cancel(caller.identity, request_id)

    async def answer(self, question: Message, say: OnMessage) -> Message:
        """The round of a call that is pending here, for a client that has come back to another replica; see `Peers`."""
        return await to_message(self._resumed(round_from(question), partial(notify_replica, say)))

    def close(self) -> None:
        """Give up what waits for clients."""
        self._pending.close()

    async def _resumed(self, round_: Round, notify: Notify, request_id: str = "") -> Result:
        identity = round_.principal, round_.request
        pending = self._pending.take(round_.state, identity)
        pending.resume(notify, round_.answers, request_id)
        return await self._pending.round(pending, lambda: identity)

    async def _send_pending(self, child: Child, call: Call, pending: PendingCall) -> Result:
        """Send a call that may outlive the request that began it; then its instance is released once more."""
        try:
            with call.caller.while_let_in(partial(self._pending.end, pending)):
                return await send(child, call, call.params, pending)
        finally:
            if child is not call.target.child:
                self._instances.release(child)


def send(child: Child, call: Call, params: Params, caller: AnyCaller) -> Awaitable[Result]:
    """Send a request to a child once, unless that is done already; its result as it came.

    Raises:
        ChildServerError: the child cannot be asked, or was lost while it was asked.
        MCPError: the child's own error, unchanged.
    """
    started, call.started = call.started, None
    told = forwarded(child, params, call.target.address)
    return child.calls.request(call.method, told, caller=caller, spent=call.spent, started=started)


def forwarded(child: Child, params: Params, address: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters for a child, of a caller's."""
    told = {**params, **address}
    # The aggregator declares no tasks, and then this is to be ignored (2025-11-25, tasks): no client could ask for the
    # task that the child would make of it.
    told.pop("task", None)
    meta = told.pop("_meta", None) or {}
    if kept := {key: value for key, value in meta.items() if key not in _CONNECTION_META}:
        told["_meta"] = kept
    if child.session is not None and child.session.era == "legacy":
        for name in RETRY_PARAMS:
            told.pop(name, None)
    return told


def _input_responses(params: Params) -> Mapping[str, Any]:
    """The answers that a client has sent, by name.

    Raises:
        MCPError: they are no object.
    """
    answers = params.get("inputResponses")
    if answers is not None and not isinstance(answers, Mapping):
        raise MCPError(INVALID_PARAMS, "Invalid request parameters: inputResponses: must be an object")
    return answers or {}


async def answers_to(caller: Caller, questions: Mapping[str, Any]) -> dict[str, Any]:
    """The client's answers to all questions, by name; the first that it refuses ends the others.

    Raises:
        MCPError: the client's error, or the child asks for what no client can answer, or for too much at once.
    """
    if len(questions) > MOST_OF_REQUEST:
        asked = f"the server asked {len(questions)} things at once"
        raise MCPError(INTERNAL_ERROR, f"{asked}, of which a client is asked {MOST_OF_REQUEST} at most")
    asking = [asyncio.ensure_future(_answer(caller, question)) for question in questions.values()]
    try:
        return dict(zip(questions, await asyncio.gather(*asking), strict=True))
    finally:
        for task in asking:
            task.cancel()


async def _answer(caller: Caller, question: Any) -> Result:
    method = question.get("method") if isinstance(question, Mapping) else None
    params = (question.get("params") or {}) if isinstance(question, Mapping) else None
    if not isinstance(method, str) or method not in SERVER_REQUESTS or not isinstance(params, Mapping):
        raise MCPError(INTERNAL_ERROR, f"the server sent a request that no client can answer: {method!r:.100}")
    return await caller.ask(method, params, ignore_progress)


def _identity(call: Call) -> tuple[Hashable, Hashable]:
    """The caller and the call: the same must come back to a pending call."""
    asked = {key: value for key, value in call.params.items() if key not in ("_meta", *RETRY_PARAMS)}
    text = json.dumps(asked, sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return call.caller.account, (call.child.key, call.method, digest)
