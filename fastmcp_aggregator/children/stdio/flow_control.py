"""Flow control of a server's pipe: pause reading when the consumer falls behind, throttle it during a flood."""

from __future__ import annotations

import asyncio

from fastmcp_aggregator.message_streams import FlowControl


class PacedFlowControl:
    """Pauses a pipe while there is one of two reasons to; each ends by itself."""

    def __init__(self, flow: FlowControl) -> None:
        self._flow = flow
        self._is_wanted = True
        self._is_throttled = False

    def pause_reading(self) -> None:
        self._is_wanted = False
        self._flow.pause_reading()

    def resume_reading(self) -> None:
        self._is_wanted = True
        self._resume_if_free()

    def throttle(self, seconds: float) -> None:
        """Throttle: pause for that long, so that other servers' messages are read meanwhile."""
        if not self._is_throttled:
            self._is_throttled = True
            self._flow.pause_reading()
            asyncio.get_running_loop().call_later(seconds, self._end_throttle)

    def _end_throttle(self) -> None:
        self._is_throttled = False
        self._resume_if_free()

    def _resume_if_free(self) -> None:
        if self._is_wanted and not self._is_throttled:
            self._flow.resume_reading()
