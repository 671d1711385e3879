"""The memory of a process with all that it has started, as far as the system tells."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress


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
