"""The result of a task for a client that takes no tasks: its server is asked until the task is over.

The client is sent progress meanwhile, and asked what the task wants to know (`inputRequests`). The pauses begin short,
so that a quick task costs little, and double up to what the server names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.concurrency.limiter import released_while_waiting
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.extensions.tasks import is_over
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.protocol.methods import PROGRESS, TASKS_GET, TASKS_UPDATE
from fastmcp_aggregator.relay.instances.open_tasks import lifetime_of
from fastmcp_aggregator.relay.rounds import answers_to

SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.1, 30.0
"""Seconds between two requests, whatever the server names."""
_DEFAULT_INTERVAL = 5.0
_MOST_QUESTIONS = 200
"""Of one task: their names are kept."""
_LOST_BOUND = 60.0
"""Seconds for which a server that cannot be asked is tried again."""


class Ask(Protocol):
    """Asks the server of the task."""

    async def __call__(self, method: str, **more: Any) -> Result:
        """Send a request for the task. Raises: ChildServerError, MCPError."""
        ...


class Polling:
    """One task, and the caller that waits for it."""

    def __init__(self, ask: Ask, caller: Caller) -> None:
        self._ask = ask
        self._caller = caller
        self._answered: set[str] = set()
        self._clock = asyncio.get_running_loop().time
        self._began = self._last_answer = self._clock()
        self.is_over = False
        """True once the server has nothing more to do for it."""

    async def result(self, task: Result) -> Result:
        """The result of the tool.

        Raises:
            ChildServerError: the server cannot be asked for long.
            MCPError: the error of the tool, or the server's, or the task was cancelled or took too long.
        """
        pause, polls = SHORTEST_INTERVAL, 0
        while not is_over(task):
            if task.get("status") == "input_required" and await self._answer(task.get("inputRequests")):
                pause = SHORTEST_INTERVAL
            with released_while_waiting.get()():
                await asyncio.sleep(pause)
            pause = min(2 * pause, interval_of(task))
            task = await self._next(task)
            polls += 1
            message = task.get("statusMessage")
            self._caller.notify(PROGRESS.name, {"progress": polls, **({"message": message} if message else {})})
            self._require_time(task)
        self.is_over = True
        return _outcome(task)

    async def _next(self, task: Result) -> Result:
        """The server's next answer; the same as before, if it cannot be asked for a moment."""
        try:
            task = await self._ask(TASKS_GET.name)
        except ChildServerError as error:
            if error.login_needed:  # who logs in now must not have the call made again, which was taken
                why = f"server {error.server_key!r}: the task can no longer be polled: {error.reason}"
                raise MCPError(INTERNAL_ERROR, why) from error
            if self._clock() - self._last_answer > _LOST_BOUND:
                raise
        else:
            self._last_answer = self._clock()
        return task

    async def _answer(self, questions: Any) -> bool:
        """Ask the client what it has not been asked; whether there was something."""
        new = (
            {key: each for key, each in questions.items() if key not in self._answered}
            if isinstance(questions, Mapping)
            else {}
        )
        if not new:
            return False
        if self._caller.is_modern:
            raise MCPError(INTERNAL_ERROR, "the task needs input from its client, which cannot be requested here")
        self._answered |= new.keys()
        if len(self._answered) > _MOST_QUESTIONS:
            raise MCPError(INTERNAL_ERROR, f"the task asked more than {_MOST_QUESTIONS} things of its client")
        await self._ask(TASKS_UPDATE.name, inputResponses=await answers_to(self._caller, new))
        return True

    def _require_time(self, task: Result) -> None:
        life = lifetime_of(task.get("ttlMs"))
        if not is_over(task) and self._clock() - self._began > life + LONGEST_INTERVAL:
            raise MCPError(
                INTERNAL_ERROR, f"the task was not done within {life:.0f} s, after which it may be forgotten"
            )


def interval_of(task: Mapping[str, Any]) -> float:
    """Seconds between two requests for a task, within bounds."""
    named = task.get("pollIntervalMs")
    if not isinstance(named, int | float) or not named > 0:
        return _DEFAULT_INTERVAL
    return max(min(named, LONGEST_INTERVAL * 1000) / 1000, SHORTEST_INTERVAL)


def _outcome(task: Result) -> Result:
    result, error = task.get("result"), task.get("error")
    if task["status"] == "completed" and isinstance(result, dict):
        return result
    if task["status"] == "failed" and isinstance(error, Mapping) and isinstance(error.get("code"), int):
        raise MCPError(error["code"], str(error.get("message", "")), error.get("data"))
    why = task.get("statusMessage")
    raise MCPError(INTERNAL_ERROR, f"the task of the server is {task['status']}" + (f": {why}" if why else ""))
