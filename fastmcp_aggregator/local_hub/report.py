"""The status report of a local hub: what it serves, its memory, and the state of each server."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastmcp_aggregator.aggregator import Aggregator


@dataclass(frozen=True, slots=True)
class HubAbout:
    """The name of a hub, and the config that it serves."""

    id: str
    name: str | None
    config: str


def report_of(about: HubAbout, app: Aggregator) -> dict[str, Any]:
    """The hub's own part, as JSON values: memory in bytes, of the hub with all of its servers; None: unknown."""
    servers = {
        key: {
            "state": status.state,
            "since": status.since,
            "last_error": status.last_error,
            "isolation": status.isolation,
            "isolation_reason": status.isolation_reason,
            "instances": status.instances,
            "instances_starting": status.instances_starting,
            "pid": status.pid,
            "dropped_stderr_lines": status.dropped_stderr_lines,
        }
        for key, status in app.health().items()
    }
    refused = [file for file in app.refused_files().values() if file is not None]
    pid = os.getpid()
    return {
        "id": about.id,
        "name": about.name,
        "config": about.config,
        "config_problem": "\n".join(str(file.problem) for file in refused) or None,
        "config_refused_for": max((file.age for file in refused), default=None),
        "pid": pid,
        "memory": memory_with_descendants(pid),
        "servers": servers,
    }


def memory_with_descendants(pid: int) -> int | None:
    """The resident bytes of a process, its children, and theirs; None: the system does not tell (it is no Linux)."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    try:
        processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    for process in processes:
        with suppress(OSError, ValueError, IndexError):
            children[_parent_of(process)].append(process)
    total, pending = 0, [pid]
    while pending:
        process = pending.pop()
        pending += children[process]
        with suppress(OSError, ValueError, IndexError):
            total += _resident_bytes(process)
    return total or None


def _parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])  # the name before may have anything in it


def _resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
