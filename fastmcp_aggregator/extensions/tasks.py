"""Tasks (SEP-2663): a tool may answer with a task, which its client then asks for. Pure.

The ids of tasks are ours (`relay/task_ids.py`). What has addresses in a task is the result of the tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastmcp_aggregator.extensions.extension import Extension
from fastmcp_aggregator.protocol.methods import MODERN, TASK_CHANGED, TASKS_CANCEL, TASKS_GET, TASKS_UPDATE

TASKS = Extension(
    "io.modelcontextprotocol/tasks",
    eras=MODERN,
    methods=(TASKS_GET, TASKS_UPDATE, TASKS_CANCEL, TASK_CHANGED),
)


@dataclass(frozen=True, slots=True)
class TaskRef:
    """One task: its server key, the id that the server gave it, and the tool, by its server's name, that made it."""

    server: str
    task: str
    tool: str
    replica: str = ""
    """The replica that has the process with the task; empty: any can ask the server."""
    instance: str = ""
    """The instance of the server there; empty: the one for everybody."""


OVER = frozenset({"completed", "failed", "cancelled"})
"""The final statuses of a task."""


def is_task(result: Mapping[str, Any]) -> bool:
    """True if a result is a task that was made in its place."""
    return result.get("resultType") == "task" and isinstance(result.get("taskId"), str)


def is_over(task: Mapping[str, Any]) -> bool:
    return task.get("status") in OVER
