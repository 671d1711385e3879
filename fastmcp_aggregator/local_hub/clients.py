"""A client of a local hub: who it says it is, and the ways to it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any

from fastmcp_aggregator.front.fast_path.pipe import PipeFront
from fastmcp_aggregator.front.stdio.socket import Say


class HubClient:
    """One client, from its greeting on. What it says of itself is used only where it is of the right kind."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        folder, pid, listed = about.get("folder"), about.get("pid"), about.get("listed")
        self.folder = folder if isinstance(folder, str) and os.path.isabs(folder) else None
        self.listed: dict[str, str] = listed if isinstance(listed, dict) else {}
        """Digests of the lists that it has got from an earlier hub, by method."""
        self.stop = asyncio.Event()
        """Set when it is not to be served any longer."""
        self._pid = pid if type(pid) is int else None
        self._group = about.get("group")
        self._began = time.monotonic()
        self._front: PipeFront | None = None
        self._say: Say | None = None

    def served(self, front: PipeFront | None, say: Say) -> None:
        self._front, self._say = front, say

    def say(self, line: bytes) -> None:
        """Tell its bridge something, if it is served already."""
        if self._say is not None:
            self._say(line)

    def status(self, now: float) -> dict[str, Any]:
        """Its name, folder, group, process, and age in seconds, for people and programs."""
        return {
            "name": self._name,
            "folder": self.folder,
            "group": self._group,
            "pid": self._pid,
            "since": now - self._began,
        }

    @property
    def described(self) -> str:
        """Its name, once that is known, its process and its folder, for the log."""
        name = "" if self._name is None else f" {self._name!r}"
        folder = "" if self.folder is None else f" in {self.folder}"
        return f"the client{name} of process {self._pid}{folder}"

    @property
    def _name(self) -> str | None:
        caller = None if self._front is None else self._front.caller
        params = None if caller is None else caller.connection.client_params
        return None if params is None else params.client_info.name
