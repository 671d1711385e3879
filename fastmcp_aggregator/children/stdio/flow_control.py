"""A valve that closes for two reasons: its reader has fallen behind, or what came through was too much at once."""

from __future__ import annotations

import asyncio

from fastmcp_aggregator.message_streams import FlowControl


class PacedFlowControl:
    """Around another valve, which is open while there is no reason to close it."""

    def __init__(self, valve: FlowControl) -> None:
        self._valve = valve
        self._is_wanted = True
        self._rests = False

    def pause_reading(self) -> None:
        """The reader has fallen behind."""
        self._is_wanted = False
        self._valve.pause_reading()

    def resume_reading(self) -> None:
        """The reader has caught up."""
        self._is_wanted = True
        self._open()

    def rest(self, seconds: float) -> None:
        """Stay closed for so long, so that others get their turn."""
        if not self._rests:
            self._rests = True
            self._valve.pause_reading()
            asyncio.get_running_loop().call_later(seconds, self._rested)

    def _rested(self) -> None:
        self._rests = False
        self._open()

    def _open(self) -> None:
        if self._is_wanted and not self._rests:
            self._valve.resume_reading()
