"""What the metrics of an instance say of the calls to each server: how many, and how long they took. Pure."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

_CALLS = "fastmcp_aggregator_calls_total"
_SECONDS = "fastmcp_aggregator_call_duration_seconds_bucket"


@dataclass(frozen=True, slots=True)
class ServerCalls:
    """Calls that have ended, and how many of them took at most so many seconds."""

    calls: float = 0
    within: dict[float, float] = field(default_factory=dict)

    def since(self, before: ServerCalls | None) -> ServerCalls:
        """Those since then. If the instance was started again in between, those since it was."""
        if before is None or self.calls < before.calls:
            return self
        within = {bound: count - before.within.get(bound, 0) for bound, count in self.within.items()}
        return ServerCalls(self.calls - before.calls, within)

    def quantile(self, share: float) -> float | None:
        """The seconds within which this share of the calls ended, estimated within a bucket as Prometheus does.

        None if there were none. Beyond the last bound it is that bound.
        """
        bounds = sorted(self.within)
        rank = share * self.within[bounds[-1]] if bounds else 0
        if rank <= 0:
            return None
        lower, below = 0.0, 0.0
        for bound in bounds:
            count = self.within[bound]
            if count >= rank:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * (rank - below) / (count - below)
            lower, below = bound, count
        return lower


def calls_of(metrics: str) -> dict[str, ServerCalls]:
    """The calls of each server key, from metrics in Prometheus' text format; none if it is something else."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - it takes a while

    calls: Counter[str] = Counter()
    within: dict[str, Counter[float]] = {}
    try:
        samples = [sample for family in text_string_to_metric_families(metrics) for sample in family.samples]
    except ValueError:
        return {}
    for sample in samples:
        server = sample.labels.get("server", "")
        if sample.name == _CALLS:
            calls[server] += sample.value  # type: ignore[assignment]
        elif sample.name == _SECONDS:
            within.setdefault(server, Counter())[float(sample.labels["le"])] += sample.value  # type: ignore[assignment]
    return {server: ServerCalls(count, dict(within.get(server, {}))) for server, count in calls.items()}
