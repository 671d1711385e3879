"""Calls of which every message has the call's nonce, and a caller that answers with it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from support.wire import META, Message, RawClient

LOG = "notifications/message"
PROGRESS = "notifications/progress"
_NONCE = re.compile(r"nonce-[\w-]+")


def nonces_in(message: Any) -> set[str]:
    return set(_NONCE.findall(json.dumps(message)))


def _script(nonce: str) -> list[Message]:
    """What the child does in one call."""
    question = {"message": f"for {nonce}", "requestedSchema": {"type": "object", "properties": {}}}
    return [
        {"progress": [1, 3, nonce]},
        {"say": LOG, "params": {"level": "info", "logger": nonce, "data": {"nonce": nonce}}},
        {"progress": [2, 3, nonce]},
        {"ask": {"q": {"method": "elicitation/create", "params": question}}},
        {"progress": [3, 3, nonce]},
    ]


@dataclass
class NonceCaller:
    """A client that calls, and answers the questions of its calls."""

    client: RawClient
    name: str
    figures: Counter[str]
    servers: dict[str, str] = field(default_factory=dict)
    """By nonce: which server was called."""

    def __post_init__(self) -> None:
        self.client.on_question = self.answer

    def answer(self, method: str, params: Message) -> Message:
        """The answer says whose question was answered, and by whom."""
        (nonce,) = nonces_in(params)
        return {"result": {"action": "accept", "content": {"of": nonce, "by": self.name}}}

    async def call(self, server: str, nonce: str, *, is_cancelled: bool) -> None:
        meta = {"progressToken": f"token of {nonce}", f"{META}logLevel": "debug"}
        params = {"name": f"{server}:play", "arguments": {"script": _script(nonce)}, "_meta": meta}
        self.servers[nonce] = server
        if is_cancelled:
            await self.cancel(nonce, params)
            self.figures["calls cancelled"] += 1
            return
        before = len(self.client.messages)
        response = await self.client.converse("tools/call", params)
        assert "result" in response, response
        (answers,) = json.loads(response["result"]["content"][0]["text"])
        self._check_answer(server, nonce, answers["q"])
        self.check_told(server, nonce, [m for m in self.client.messages[before:] if nonces_in(m) == {nonce}])
        self.figures["calls"] += 1

    async def cancel(self, nonce: str, params: Message) -> None:
        """Begin a call, and cancel it once the first message of the child has come."""
        raise NotImplementedError

    def check_told(self, server: str, nonce: str, own: list[Message]) -> None:
        """`own` are the messages of a call."""
        raise NotImplementedError

    def _check_answer(self, server: str, nonce: str, answer: Message) -> None:
        if "error" in answer:
            assert answer["error"]["code"] == -32600, answer
            assert server.startswith(("pipe-legacy", "pipe-both")), "only there can it be unclear whom to ask"
            self.figures["questions refused"] += 1
        else:
            assert answer["content"] == {"of": nonce, "by": self.name}
            self.figures["questions answered"] += 1
