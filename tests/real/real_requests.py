"""Requests in the words of the server that they are for, whoever is asked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """One request."""

    server_key: str
    method: str
    target: str
    rest: Message = field(default_factory=dict)
    """The parameters beside the target. `FILES` and `REPOSITORY` in them stand for the real paths."""

    def __str__(self) -> str:
        return f"{self.server_key} {self.target.rsplit('/', 1)[-1]} {json.dumps(self.rest)[:60]}"


def call(server_key: str, tool: str, /, **arguments: Any) -> Asked:
    return Asked(server_key, "tools/call", tool, {"arguments": arguments})


def prompt(server_key: str, name: str, /, **arguments: Any) -> Asked:
    return Asked(server_key, "prompts/get", name, {"arguments": arguments})


def read(server_key: str, uri: str) -> Asked:
    return Asked(server_key, "resources/read", uri)


def complete(server_key: str, target: str, argument: str, value: str, /, **known: str) -> Asked:
    """Complete an argument of a prompt, or of a resource template, of which other arguments are known."""
    context = {"context": {"arguments": known}} if known else {}
    return Asked(server_key, "completion/complete", target, {"argument": {"name": argument, "value": value}, **context})
