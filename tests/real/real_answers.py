"""Answers of servers made comparable: without their frame, in public names, and without what differs in every run."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from support.wire import META

Message = dict[str, Any]
Event = tuple[str, str, Any]
"""What a client hears: ("asked" or "told", method, parameters) or ("answered", "", outcome)."""

_ENVELOPE = ("resultType", "ttlMs", "cacheScope")
_SERVER_STAMP = f"{META}serverInfo"
_SUBSCRIPTION = f"{META}subscriptionId"
_OF_THE_TRANSPORT = frozenset({"notifications/subscriptions/acknowledged"})
_CLOCK = re.compile(r"\d{1,2}:\d{2}:\d{2} [AP]M")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def outcome(answer: Message) -> Message:
    """An answer without its JSON-RPC frame."""
    return {key: value for key, value in answer.items() if key not in ("jsonrpc", "id")}


def is_enveloped(result: Message) -> bool:
    """Whether a result has anything that only 2026-07-28 has around it."""
    return any(key in result for key in _ENVELOPE) or _SERVER_STAMP in result.get("_meta", {})


def unenveloped(answer: Message) -> Message:
    """An outcome without what its protocol era puts around a result."""
    if "result" not in answer:
        return answer
    return {"result": _without_meta(_without(answer["result"], *_ENVELOPE), _SERVER_STAMP)}


def events(heard: Iterable[Message]) -> Iterator[Event]:
    """What a client has heard, whatever era it speaks, but for list changes: those are told once for many."""
    for message in heard:
        if "method" in message:
            kind = "asked" if "id" in message else "told"
            if not message["method"].endswith("/list_changed") and message["method"] not in _OF_THE_TRANSPORT:
                yield kind, message["method"], _without_meta(message.get("params", {}), _SUBSCRIPTION)
        elif message.get("result", {}).get("resultType") == "input_required":
            for question in message["result"]["inputRequests"].values():
                yield "asked", question["method"], question.get("params", {})
        else:
            yield "answered", "", unenveloped(outcome(message))


def public_address(server_key: str, uri: str) -> str:
    """A child's URI or URI template as the aggregator is to write it."""
    scheme, rest = uri.split("://", 1)
    return f"{scheme}://{server_key}/{rest}"


def public_component(server_key: str, id_field: str, component: Message) -> Message:
    """A child's component as the aggregator is to list it."""
    original = component[id_field]
    public = f"{server_key}:{original}" if id_field == "name" else public_address(server_key, original)
    return {**component, id_field: public}


def public(server_key: str, value: Any) -> Any:
    """What a child answers or tells as the aggregator is to pass it on: every `uri` in it can be read there."""
    if isinstance(value, list | tuple):
        return type(value)(public(server_key, item) for item in value)
    if not isinstance(value, dict):
        return value
    changed = {key: public(server_key, item) for key, item in value.items()}
    if isinstance(value.get("uri"), str):
        changed["uri"] = public_address(server_key, value["uri"])
    return changed


def canonical(value: Any) -> str:
    """JSON text that is equal exactly when two values are, but for times of day and random ids."""
    return json.dumps(_steady(value), sort_keys=True, indent=1, ensure_ascii=False)


def without_clock(text: str) -> str:
    """A text without times of day and random ids, which may also be written in base64."""
    try:
        decoded = base64.b64decode(text, validate=True).decode("ascii")
    except ValueError:
        return _UUID.sub("<id>", _CLOCK.sub("<time>", text))
    return _CLOCK.sub("<time>", decoded) if _CLOCK.search(decoded) else text


def _steady(value: Any) -> Any:
    if isinstance(value, str):
        return without_clock(value)
    if isinstance(value, list | tuple):
        return [_steady(item) for item in value]
    if isinstance(value, dict):
        return {key: _steady(item) for key, item in value.items()}
    return value


def _without(value: Message, *keys: str) -> Message:
    return {key: item for key, item in value.items() if key not in keys}


def _without_meta(value: Message, key: str) -> Message:
    meta = _without(value.get("_meta", {}), key)
    return {**_without(value, "_meta"), **({"_meta": meta} if meta else {})}
