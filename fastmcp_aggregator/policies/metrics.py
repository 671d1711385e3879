"""The metrics policy: the metrics of one aggregator, in Prometheus' format.

Calls are counted as they end. What the children and the program know anyway is collected at each scrape.
Labels are server keys, the names of tools that were called, and words of ours; the number of tools that get a label is
bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fastmcp_aggregator.concurrency.limiter import Usage
from fastmcp_aggregator.policies.counted import Count, Durations, counter, histogram
from fastmcp_aggregator.policies.policy import CallEnd, Policy
from fastmcp_aggregator.protocol.methods import TOOLS_CALL
from fastmcp_aggregator.status.path_counts import PathCounts
from fastmcp_aggregator.status.server_status import ChildState, ServerStatus
from fastmcp_aggregator.version import VERSION

if TYPE_CHECKING:
    from fastmcp_aggregator.callers.call import Call

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "_other"
"""The label of tools beyond the limit, or whose name is too long or not printable."""
_MOST_TOOLS = 200
"""Tools of one server that get a label, at most: a server may change its list without end."""
_LONGEST_NAME = 128
_LONG = 2000
"""Samples of one metric that take some 20 ms to write."""
_SLICE = 0.005
"""Seconds after which others have a turn."""
_SECONDS = (0.005, 0.025, 0.1, 0.25, 1.0, 5.0, 10.0, 15.0, 30.0, 300.0)
_PREFIX = "fastmcp_aggregator"
_Series = tuple[Count, Durations | None, Count, Count]
_Values = Mapping[Any, float]
"""Values by tuple of label values."""

_COUNTS: dict[str, tuple[str, Callable[[ServerStatus], int]]] = {
    "server_restarts": ("Restarts: starts after the first.", lambda status: status.restarts),
    "server_unanswered": ("Requests that timed out without an answer.", lambda status: status.unanswered),
    "server_ignored_lines": ("Lines of its stdout that are no JSON-RPC message.", lambda status: status.ignored_lines),
    "server_dropped_notifications": ("Notifications dropped by the rate limit.", lambda s: s.dropped_notifications),
    "server_dropped_stderr_lines": (
        "Lines of its stderr that were too many to pass on.",
        lambda s: s.dropped_stderr_lines,
    ),
}
_GAUGES: dict[str, tuple[str, Callable[[ServerStatus], int]]] = {
    "server_calls_in_flight": ("Requests in flight to it.", lambda status: status.in_flight),
    "server_calls_waiting": ("Requests in its queue, waiting for a slot.", lambda status: status.waiting),
    "server_cut_off": ("1 while the circuit breaker is open and calls are rejected.", lambda s: int(s.is_cut_off)),
    "server_login_needed": ("1 while a person has to log in to it.", lambda status: int(status.login_needed)),
    "server_callers": ("Callers that have requests in flight to it.", lambda status: status.callers),
    "server_tools": ("Tools that are listed now.", lambda status: status.tools),
}
_SHARES: dict[str, tuple[str, Callable[[Usage], int]]] = {
    "limit": ("What all callers together may have.", lambda usage: usage.total),
    "taken": ("What they have.", lambda usage: usage.taken),
    "callers": ("Callers that have some of it.", lambda usage: usage.holders),
    "largest": ("What the one has that has most.", lambda usage: usage.largest[1]),
}


@dataclass(frozen=True, slots=True)
class Scrape:
    """The values collected at each scrape."""

    statuses: Mapping[str, ServerStatus] = field(default_factory=dict)
    """The status of each child, by server key."""
    http_requests: tuple[int, int] = (0, 0)
    """HTTP requests in flight, and in the queue."""
    shares: Mapping[str, Usage] = field(default_factory=dict)
    """The limiters that HTTP callers share, by name."""
    audit_entries_lost: int = 0
    is_audit_failing: bool = False
    paths: PathCounts = field(default_factory=PathCounts)
    refused_files: Mapping[str, float] = field(default_factory=dict)
    """Since when each file is not in use as it is now, in seconds since 1970; 0: it is in use."""
    key_expiries: Mapping[str, datetime] = field(default_factory=dict)
    """When the next of the keys for each group expires."""


class Metrics(Policy):
    """Counts each call by its outcome, and times it; renders all metrics."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._calls = counter(f"{_PREFIX}_calls_total", "Calls that have ended.")
        text = "Duration of calls, but for those that were denied."
        self._seconds = histogram(f"{_PREFIX}_call_duration_seconds", text, _SECONDS)
        self._request_bytes = counter(f"{_PREFIX}_request_bytes_total", "Bytes of calls' parameters, as JSON.")
        self._response_bytes = counter(f"{_PREFIX}_response_bytes_total", "Bytes of calls' results, as JSON.")
        text = "HTTP requests without valid credentials."
        self._authentication_failures = counter(f"{_PREFIX}_authentication_failures_total", text)
        self._authentication_failures.of()
        self._counted = (
            *(self._calls, self._seconds, self._request_bytes, self._response_bytes),
            self._authentication_failures,
        )
        Info(_PREFIX, "The aggregator.", registry=registry).info({"version": VERSION})
        ProcessCollector(registry=registry)
        self._tools: dict[str, set[str]] = {}
        self._known_series: dict[tuple[str, str, str, str], _Series] = {}

    def after(self, call: Call, end: CallEnd) -> None:
        tool = self._label(call.server, call.name if call.server and call.method == TOOLS_CALL.name else "")
        calls, seconds, request_bytes, response_bytes = self._series(call.server, call.method, tool, end.outcome)
        calls.value += 1
        if seconds is not None:
            seconds.observe(end.seconds)
        request_bytes.value += call.request_bytes
        response_bytes.value += end.response_bytes

    def authentication_failed(self) -> None:
        self._authentication_failures.of().value += 1

    async def render(self, found: Scrape) -> bytes:
        """Return all metrics as text. Others go on in between; a thread makes what is long, and would get its turn late
        for each that is short.
        """
        parts, began = [], time.perf_counter()
        for family in self._counted:
            for lines in family.lines():
                parts.append(lines.encode())
                if time.perf_counter() - began > _SLICE:
                    await asyncio.sleep(0)
                    began = time.perf_counter()
        for metric in (*self._registry.collect(), *_collected(found)):
            if len(metric.samples) > _LONG:
                parts.append(await asyncio.to_thread(generate_latest, _Only(metric)))
            else:
                parts.append(generate_latest(_Only(metric)))
            if time.perf_counter() - began > _SLICE:
                await asyncio.sleep(0)
                began = time.perf_counter()
        return b"".join(parts)

    def _series(self, key: str, method: str, tool: str, outcome: str) -> _Series:
        """The series of a call with these labels, kept, because to find them takes longer than to count."""
        labels = key, method, tool, outcome
        found = self._known_series.get(labels)
        if found is None:
            server = _text(key)
            found = self._known_series[labels] = (
                self._calls.of(server=server, method=method, tool=tool, outcome=outcome),
                None if outcome == "denied" else self._seconds.of(server=server, tool=tool),
                self._request_bytes.of(server=server),
                self._response_bytes.of(server=server),
            )
        return found

    def _label(self, server: str, tool: str) -> str:
        known = self._tools.setdefault(server, {""})
        if tool not in known:
            if len(known) > _MOST_TOOLS or len(tool) > _LONGEST_NAME or not tool.isprintable():
                return OTHER
            known.add(tool)
        return tool


class _Only(Collector):
    """A registry with one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def _collected(found: Scrape) -> Iterator[Metric]:
    statuses, shares = found.statuses, found.shares
    text = "1 for its present state."
    states = {
        (key, possible.value): status.state is possible for key, status in statuses.items() for possible in ChildState
    }
    yield _gauge("server_state", text, ("server", "state"), states)
    for name, (text, count_of) in _COUNTS.items():
        yield _counter(name, text, ("server",), {(key,): count_of(status) for key, status in statuses.items()})
    for name, (text, value_of) in _GAUGES.items():
        yield _gauge(name, text, ("server",), {(key,): value_of(status) for key, status in statuses.items()})
    text = "When the lists of a server that has not been asked in this run were read, in seconds since 1970."
    read_at = {(key,): since for key, status in statuses.items() if (since := status.catalogue_since) is not None}
    yield _gauge("server_catalogue_time_seconds", text, ("server",), read_at)
    running, waiting = found.http_requests
    yield _gauge("http_requests_running", "HTTP requests in flight.", (), {(): running})
    yield _gauge("http_requests_waiting", "HTTP requests in the admission queue.", (), {(): waiting})
    for name, (text, amount_of) in _SHARES.items():
        yield _gauge(f"share_{name}", text, ("of",), {(of,): amount_of(usage) for of, usage in shares.items()})
    text = "How often there was none for a caller."
    yield _counter("share_refused", text, ("of",), {(of,): usage.refused for of, usage in shares.items()})
    paths = {(outcome, reason): count for outcome, reason, count in found.paths.samples()}
    yield _counter("fast_path_requests", "Requests, by what the fast path did.", ("outcome", "reason"), paths)
    text = "Entries that the audit log has dropped."
    yield _counter("audit_entries_lost", text, (), {(): found.audit_entries_lost})
    yield _gauge("audit_failing", "1 while the audit log cannot be written.", (), {(): found.is_audit_failing})
    text = "Since when a file is refused as it is now, in seconds since 1970; 0 while it is in use."
    refused = {(what,): since for what, since in found.refused_files.items()}
    yield _gauge("file_refused_time_seconds", text, ("file",), refused)
    text = "When the next of the keys for a group expires, in seconds since 1970; of those for all groups: *."
    expiries = {(group,): expires.timestamp() for group, expires in found.key_expiries.items()}
    yield _gauge("key_expiry_time_seconds", text, ("group",), expiries)


def _gauge(name: str, text: str, labels: Sequence[str], values: _Values) -> Metric:
    return _filled(GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels), values)


def _counter(name: str, text: str, labels: Sequence[str], values: _Values) -> Metric:
    return _filled(CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: _Values) -> Metric:
    for labels, value in values.items():
        family.add_metric([_text(label) for label in labels], value)
    return family


def _text(label: str) -> str:
    """A label that can be written as UTF-8: half of a surrogate pair in a key must not end all metrics."""
    return label.encode(errors="replace").decode()
