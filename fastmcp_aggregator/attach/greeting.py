"""Control messages between bridges and hubs, beside MCP: lines of JSON whose first key is `hub`, which no message has.

A connection begins with one line that says what is wanted, and one that answers it. Afterwards a client's has messages
of MCP in both directions, and a hub that is about to end says so in between.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.version import VERSION

MARK = b'{"hub":'
"""The prefix of every such line."""
LONGEST = 64 * 1024
"""Bytes of such a line, at most; the answers of a hub to questions about it may be longer."""
_MOST_OF_REASON = 4000
"""Characters, of which each takes 12 bytes at most."""
CLIENT, STATUS, STOP, OPEN, PING, RESTART = "client", "status", "stop", "open", "ping", "restart"
"""The kinds of request."""
INTRODUCED, READY, REFUSED, FAILED, STOPPING = "introduced", "ready", "refused", "failed", "stopping"
"""The states of a hub: starting, with its answer to the handshake in the greeting; serving; not serving this client;
failed to start; stopping, after which it may be started again.
"""


class MalformedGreeting(ValueError):
    """A line is not a greeting."""


def line(what: str, **about: Any) -> bytes:
    return json.dumps({"hub": what, "version": VERSION, **about}, separators=(",", ":")).encode() + b"\n"


def failed(reason: str) -> bytes:
    """A line for a hub that did not start; without a reason, its log has it."""
    return line(FAILED, reason=" ".join(reason.split())[:_MOST_OF_REASON])


def read(data: bytes) -> tuple[str, Mapping[str, Any]]:
    """The kind and all fields of a line. Raises MalformedGreeting: it is something else."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedGreeting from None
    if not isinstance(message, dict) or not isinstance(message.get("hub"), str):
        raise MalformedGreeting
    return message["hub"], message


def say(text: str) -> None:
    """Say something on stderr, if it can be said there."""
    try:
        os.write(2, f"{printable(text)}\n".encode())
    except OSError:
        return
