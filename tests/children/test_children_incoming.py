"""Questions of a child that its client leaves open: their number and their bytes are bounded."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.children.session.incoming import Incoming

METHOD = "elicitation/create"


class Clients:
    """Who owns everything, and answers when told to."""

    def __init__(self) -> None:
        self.request = SimpleNamespace(deadline=None, questions=0, caller=self)
        self.may_answer = asyncio.Event()

    async def ask(self, *_: Any) -> dict[str, Any]:
        await self.may_answer.wait()
        return {}

    def caller_of(self, _: Any) -> Clients:
        return self

    def request_of(self, _: Any) -> Any:
        return self.request


async def asked(clients: Clients, times: int, text: str = "", *, of_one: bool = True) -> tuple[int, int]:
    """How many of so many questions wait for their answers, and how many are refused. In the end all are answered."""
    incoming = Incoming("a", clients, SimpleNamespace())  # type: ignore[arg-type]
    tasks = []
    for _ in range(times):
        if not of_one:
            clients.request = SimpleNamespace(deadline=None, questions=0, caller=clients)
        tasks.append(asyncio.create_task(incoming.on_request(METHOD, {"message": text}, None, lambda *_: None)))  # type: ignore[arg-type,return-value]
        await asyncio.sleep(0)
    refused = [task for task in tasks if task.done()]
    for task in refused:
        with pytest.raises(MCPError, match="too many questions are open; wait for the answers first"):
            task.result()
    clients.may_answer.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    clients.may_answer.clear()
    assert incoming._open == []
    return len(tasks) - len(refused), len(refused)


async def test_of_one_request_twenty_questions_may_be_open() -> None:
    assert await asked(Clients(), 25) == (20, 5)


async def test_of_one_child_a_hundred_questions_may_be_open() -> None:
    assert await asked(Clients(), 120, of_one=False) == (100, 20)


async def test_large_questions_are_bounded_together_and_one_alone_may_be_larger() -> None:
    assert await asked(Clients(), 5, "x" * 10 * 1024**2) == (3, 2)
    assert await asked(Clients(), 2, "x" * 40 * 1024**2) == (1, 1)
