"""The open tasks of children and instances, which are kept until these are over."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from fastmcp_aggregator.children.child import Child

TASK_LIFETIME = 24 * 3600.0
"""Seconds for which a task is kept after it was last heard of, at most, and if its server does not say for how long."""
_MOST = 1000
"""Open tasks of one instance that are kept in mind."""


def lifetime_of(ttl_ms: Any) -> float:
    """Seconds for which a task may be asked for; its server may say anything: NaN, or what no float can be."""
    is_shorter = isinstance(ttl_ms, int | float) and ttl_ms < TASK_LIFETIME * 1000
    return max(0, ttl_ms) / 1000 if is_shorter else TASK_LIFETIME


class OpenTasks:
    """The open tasks of all children, each under the name that the ids of its tasks tell."""

    def __init__(self) -> None:
        self._named: dict[str, Child] = {}
        self._tasks: dict[Child, tuple[str, dict[str, float]]] = {}
        """The name of each that has made tasks, and until when it is kept for which, by the loop's clock."""

    def hold(self, instance: Child, task: str, ttl_ms: Any, *, over: bool = False) -> str:
        """Keep a child or instance while a task of it is open; what the ids of an instance's tasks name it."""
        if instance not in self._tasks:
            self._tasks[instance] = name, _ = secrets.token_urlsafe(9), {}
            self._named[name] = instance
        name, tasks = self._tasks[instance]
        tasks.pop(task, None)
        if not over:
            tasks[task] = asyncio.get_running_loop().time() + lifetime_of(ttl_ms)
        if len(tasks) > _MOST:
            del tasks[next(iter(tasks))]
        return name

    def named(self, name: str) -> Child | None:
        """The instance that the id of a task names."""
        return self._named.get(name)

    def held_for(self, instance: Child) -> float:
        """Seconds for which an instance is kept for its tasks."""
        _, tasks = self._tasks.get(instance, ("", {}))
        now = asyncio.get_running_loop().time()
        for task in [task for task, end in tasks.items() if end <= now]:
            del tasks[task]
        return max(tasks.values(), default=now) - now

    def forget(self, instance: Child) -> None:
        name, _ = self._tasks.pop(instance, ("", {}))
        self._named.pop(name, None)
