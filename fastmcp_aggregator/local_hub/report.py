"""The status report of a local hub: what it serves, its memory, and the state of each server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from fastmcp_aggregator.aggregator import Aggregator
from fastmcp_aggregator.local_hub.memory import memory_with_descendants


@dataclass(frozen=True, slots=True)
class HubAbout:
    """What it is called, and which config it serves."""

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
