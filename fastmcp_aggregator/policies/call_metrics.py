"""The metrics policy: counts calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastmcp_aggregator.observability.metrics import Metrics
from fastmcp_aggregator.policies.policy import CallEnd

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call


class Metering:
    """Counts each call by its outcome, and times it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def is_ready_for(self, call: Call) -> bool:
        """Always."""
        return True

    def before(self, call: Call) -> None:
        """Let every call pass."""

    def after(self, call: Call, end: CallEnd) -> None:
        self._metrics.record_call(
            call.server,
            call.method,
            call.name if call.method == "tools/call" else "",
            end.outcome,
            seconds=end.seconds,
            request_bytes=call.request_bytes,
            response_bytes=end.response_bytes,
        )
