"""A policy that counts calls."""

from __future__ import annotations

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.observability.metrics import Metrics
from fastmcp_aggregator.policies.policy import End


class Metering:
    """Tells the metrics of each call, what came of it, and how long it took."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def before(self, call: Call) -> None:
        """See `Policy`. Everything passes."""

    def after(self, call: Call, end: End) -> None:
        """See `Policy`."""
        self._metrics.called(
            call.server,
            call.method,
            call.name if call.method == "tools/call" else "",
            end.outcome,
            seconds=end.seconds,
            request_bytes=call.request_bytes,
            response_bytes=end.response_bytes,
        )
