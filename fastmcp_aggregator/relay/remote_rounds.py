"""Remote rounds: a client has come back to another replica than the one that holds its pending call.

Theory. The call stays where it began, with the child that has asked. The replica that the client came back to asks the
other to do the round in its place: it sends the state, who the client is, what the request was, and the answers, and
the other checks them as if the client had come to it. What the child says meanwhile comes back as parts; the result,
the next questions, or the error, as the answer. If the client leaves, the round is cancelled there, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from fastmcp_aggregator.callers.call import Denied
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.relay.pending_calls import Notify, call_is_over
from fastmcp_aggregator.replicas.peers import MalformedMessageError, Message, OnMessage, PeerLostError, Peers
from fastmcp_aggregator.replicas.rpc import TOO_LARGE
from fastmcp_aggregator.replicas.wire import TooLargeError

_REPORTED = ("server_key", "phase", "reason", "public_reason", "retry_in", "auth_error", "login_needed")
"""The fields of a child's failure that the other replica gets."""


@dataclass(frozen=True, slots=True)
class Round:
    """The answers that a client comes back with, and the values that must be as they were."""

    state: str
    principal: Hashable
    request: Hashable
    answers: Mapping[str, Any]


def notify_replica(say: OnMessage, method: str, params: Mapping[str, Any]) -> None:
    """Pass a notification for the round's client on to the replica that it came back to."""
    say({"method": method, "params": dict(params)})


async def continue_remotely(peers: Peers, replica: str, round_: Round, notify: Notify) -> Result:
    """Have the replica that holds the call do the round; its result.

    Raises:
        ChildServerError: as when the call were held here.
        MCPError: too; and if the other replica is gone, the call is over.
    """
    question = {
        "state": round_.state,
        "principal": round_.principal,
        "request": round_.request,
        "answers": dict(round_.answers),
    }
    try:
        answer = await peers.request(replica, question, lambda part: notify(part["method"], part["params"]))
    except PeerLostError:
        raise call_is_over() from None
    except TooLargeError:
        raise _too_large("answers") from None
    return result_from(answer)


def round_from(question: Message) -> Round:
    """The round that another replica asks for. Raises: MalformedMessageError."""
    match question:
        case {"state": str(state), "principal": principal, "request": request, "answers": dict(answers)}:
            return Round(state, frozen(principal), frozen(request), answers)
        case _:
            raise MalformedMessageError


async def to_message(result: Awaitable[Result]) -> Message:
    """The outcome of a round, for the replica that has asked for it."""
    try:
        return {"result": await result}
    except MCPError as error:
        reason = {"denied": error.reason} if isinstance(error, Denied) else {}
        return {"error": {"code": error.error.code, "message": error.error.message, "data": error.error.data, **reason}}
    except ChildServerError as error:
        reported = {name: getattr(error, name) for name in _REPORTED}
        return {"failed": reported}


def result_from(answer: Message) -> Result:
    """The result in a message of `to_message`.

    Raises:
        ChildServerError, MCPError
    """
    match answer:
        case {"result": dict(result)}:
            return result
        case {"error": {"code": int(code), "message": str(message), "data": data, "denied": str(reason)}}:
            raise Denied(code, message, data, reason=reason)
        case {"error": {"code": int(code), "message": str(message), "data": data}}:
            raise MCPError(code, message, data)
        case {"failed": {"server_key": str(), "phase": str(), "reason": str(), **rest} as failure} if (
            failure.keys() <= {*_REPORTED} and isinstance(rest.get("public_reason"), str | None)
        ):
            raise ChildServerError(**failure)
        case _ if answer == TOO_LARGE:
            raise _too_large("result")
        case _:
            raise call_is_over()


def _too_large(what: str) -> MCPError:
    return MCPError(INTERNAL_ERROR, f"the {what} of this call are too large to be passed between replicas")


def frozen(value: Any) -> Hashable:
    """JSON has lists where there were tuples. Raises: MalformedMessageError."""
    if isinstance(value, dict):
        raise MalformedMessageError
    return tuple(map(frozen, value)) if isinstance(value, list) else value
