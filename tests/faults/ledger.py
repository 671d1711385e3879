"""Which answers to a call are right, whenever it was sent and whatever has happened to its server since."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from http_garbage import HttpAnswer


@dataclass(eq=False)
class Call:
    """One call, and what may become of it."""

    caller: str
    key: str
    tool: str
    nonce: str
    answer: asyncio.Future[Any]
    give_up: Callable[[], None]
    versions: set[int | None]
    """Of the server, that may answer it; None if it may find no such server."""
    may_fail: bool
    may_be_turned_away: bool
    """Because there are more at the same time than may be."""
    is_cancelled: bool = False

    def fault(self) -> str | None:
        """What is wrong with its answer."""
        if self.is_cancelled or not self.answer.done():
            return None
        told = self.answer.result()
        if isinstance(told, HttpAnswer) and told.status == 503:
            return None if self.may_be_turned_away else f"{self} was turned away"
        answer = told.message() if isinstance(told, HttpAnswer) else told
        is_right = self._is_failure(answer["error"]) if "error" in answer else self._is_result(answer["result"])
        return None if is_right else f"{self} was answered with {answer}"

    def _is_result(self, result: dict[str, Any]) -> bool:
        content = json.loads(result["content"][0]["text"])
        echoed = content.get("arguments" if self.tool == "echo" else "held", {"nonce": self.nonce})
        servers = {f"{self.key}.{version}" for version in self.versions}
        return echoed == {"nonce": self.nonce} and content.get("server", f"{self.key}.{min(servers)}") in servers

    def _is_failure(self, error: dict[str, Any]) -> bool:
        if error["message"].startswith(f"Tool not found: {self.key}:"):
            return None in self.versions
        if error["message"].startswith(f"server {self.key!r}: it is busy"):
            return self.may_be_turned_away
        return self.may_fail and error["message"].startswith(f"server {self.key!r}: ")
