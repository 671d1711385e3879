"""Metrics: what is counted, what is asked for when they are read, and that no label grows without bound."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support import doubles
from support.harness import config, connected, lean
from support.memory import build_aggregator
from support.wire import until_answered

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.aggregator import Aggregator
from fastmcp_aggregator.callers.call import json_size
from fastmcp_aggregator.cli.running.instance import calls_of
from fastmcp_aggregator.concurrency.limiter import Usage
from fastmcp_aggregator.policies.metrics import CONTENT_TYPE, OTHER, Metrics, Scrape
from fastmcp_aggregator.policies.policy import CallEnd
from fastmcp_aggregator.policies.stack import PolicyStack
from fastmcp_aggregator.version import VERSION

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def read(metrics: Metrics | Aggregator, found: Scrape | None = None) -> Values:
    """Every sample: name without our prefix, labels, value."""
    if isinstance(metrics, Aggregator):
        rendered = await metrics.rendered_metrics()
        assert rendered is not None
        text, _ = rendered
    else:
        text = await metrics.render(found or Scrape())
    return {
        (sample.name.removeprefix("fastmcp_aggregator_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def value(metrics: Metrics | Aggregator, name: str, found: Scrape | None = None, **labels: str) -> float | None:
    return (await read(metrics, found)).get((name, frozenset(labels.items())))


def call_tool(metrics: Metrics, server: str, tool: str, outcome: str = "ok", seconds: float = 0.02) -> None:
    call = doubles.call(Principal(), "default", "tools/call", server, tool, {"a": 1})
    metrics.after(call, CallEnd(outcome, seconds))  # type: ignore[arg-type]


async def answered(result: dict[str, Any]) -> dict[str, Any]:
    return result


@pytest.mark.parametrize(
    ("method", "name", "result", "tool", "outcome"),
    [
        ("tools/call", "log", {"content": []}, "log", "ok"),
        ("tools/call", "log", {"content": [], "isError": True}, "log", "tool_error"),
        ("tools/call", "log", {"resultType": "input_required"}, "log", "input_required"),
        ("resources/read", "file:///a", {"contents": []}, "", "ok"),
        ("prompts/get", "review", {"messages": []}, "", "ok"),
    ],
)
async def test_a_call_counts_for_its_server_its_tool_and_what_came_of_it(
    method: str, name: str, result: dict[str, Any], tool: str, outcome: str
) -> None:
    metrics = Metrics()
    call = doubles.call(Principal(), "default", method, "git", name, {"a": 1})
    await doubles.run(PolicyStack([metrics]), call, lambda _: answered(result))
    assert await value(metrics, "calls_total", server="git", method=method, tool=tool, outcome=outcome) == 1
    assert await value(metrics, "call_duration_seconds_count", server="git", tool=tool) == 1
    assert await value(metrics, "request_bytes_total", server="git") == len('{"a":1}')
    assert await value(metrics, "response_bytes_total", server="git") == json_size(result)


async def test_how_long_a_call_took_is_counted_unless_it_was_denied() -> None:
    metrics = Metrics()
    call_tool(metrics, "git", "log", seconds=0.02)
    call_tool(metrics, "git", "log", "error", seconds=7.0)
    call_tool(metrics, "git", "log", "denied", seconds=0.0)
    assert await value(metrics, "call_duration_seconds_count", server="git", tool="log") == 2
    assert await value(metrics, "call_duration_seconds_sum", server="git", tool="log") == 7.02
    assert await value(metrics, "call_duration_seconds_bucket", server="git", tool="log", le="0.025") == 1
    assert await value(metrics, "call_duration_seconds_bucket", server="git", tool="log", le="30.0") == 2


@pytest.mark.parametrize(("took", "told"), [(6, 10), (11, 15), (16, 30)])
async def test_a_quantile_of_slow_calls_is_less_than_double_what_they_took(took: float, told: float) -> None:
    metrics = Metrics()
    for _ in range(1000):
        call_tool(metrics, "git", "log", seconds=took)
    shown = calls_of((await metrics.render(Scrape())).decode())["git"].quantile(0.99)
    assert shown == pytest.approx(told, rel=0.01)


async def test_a_server_that_changes_its_tools_without_end_has_a_bounded_number_of_labels() -> None:
    metrics = Metrics()
    for number in range(300):
        call_tool(metrics, "git", f"tool_{number}")
    call_tool(metrics, "git", "tool_0")
    call_tool(metrics, "docs", "search")
    tools = {dict(labels)["tool"] for name, labels in await read(metrics) if name == "calls_total"}
    assert len(tools) == 200 + len({OTHER, "search"})
    labels = {"method": "tools/call", "outcome": "ok"}
    assert await value(metrics, "calls_total", server="git", tool=OTHER, **labels) == 100
    assert await value(metrics, "calls_total", server="git", tool="tool_0", **labels) == 2
    assert await value(metrics, "calls_total", server="docs", tool="search", **labels) == 1


@pytest.mark.parametrize("name", ["x" * 129, "two\nlines", "\x1b[31m", "half \ud83d"])
async def test_a_tool_whose_name_is_no_label_is_counted_among_the_others(name: str) -> None:
    metrics = Metrics()
    call_tool(metrics, "git", name)
    assert await value(metrics, "call_duration_seconds_count", server="git", tool=OTHER) == 1


async def test_what_the_servers_do_is_asked_for_when_the_metrics_are_read() -> None:
    app = build_aggregator(config(git=lean(tools=3), **{"my docs": lean()}), metrics=True)
    assert await value(app, "server_state", server="git", state="running") is None
    async with app, connected(app) as client:
        assert await value(app, "server_state", server="git", state="running") == 1
        assert await value(app, "server_state", server="git", state="failed") == 0
        tools = [await value(app, "server_tools", server=key) or 0 for key in ("git", "my docs")]
        assert tools[0] == tools[1] + 3
        assert await value(app, "server_restarts_total", server="git") == 0
        client.begin("tools/call", {"name": "git:hold"})
        await until_answered(lambda: value(app, "server_calls_in_flight", server="git"), lambda found: found == 1)
        await client.error("tools/call", {"name": "git:leave"})
        await until_answered(lambda: value(app, "server_restarts_total", server="git"), lambda found: found == 1)
        assert await value(app, "server_restarts_total", server="my docs") == 0
    assert await value(app, "server_state", server="git", state="running") is None


async def test_a_server_that_does_not_answer_is_seen_to_be_cut_off() -> None:
    app = build_aggregator(config(git=lean()), call_timeout=0.05, metrics=True)
    async with app, connected(app) as client:
        assert await value(app, "server_cut_off", server="git") == 0
        for _ in range(5):
            await client.error("tools/call", {"name": "git:hold"})
        assert await value(app, "server_cut_off", server="git") == 1
        assert await value(app, "server_unanswered_total", server="git") == 5


async def test_what_callers_share_is_told_without_their_names() -> None:
    metrics = Metrics()
    found = Scrape(shares={"streams": Usage(total=1250, taken=7, holders=2, largest=("someone", 5), refused=3)})
    names = ("limit", "taken", "callers", "largest")
    assert [await value(metrics, f"share_{name}", found, of="streams") for name in names] == [1250, 7, 2, 5]
    assert await value(metrics, "share_refused_total", found, of="streams") == 3
    assert b"someone" not in await metrics.render(found)


async def test_the_next_key_to_expire_is_told_by_group() -> None:
    found = Scrape(key_expiries={"web": datetime.fromtimestamp(1_800_000_000, UTC), "*": datetime.now(UTC)})
    assert await value(Metrics(), "key_expiry_time_seconds", found, group="web") == 1_800_000_000


async def test_what_the_program_knows_is_asked_for_too() -> None:
    metrics, found = Metrics(), Scrape(http_requests=(3, 40), audit_entries_lost=5)
    metrics.authentication_failed()
    assert await value(metrics, "http_requests_running", found) == 3
    assert await value(metrics, "http_requests_waiting", found) == 40
    assert await value(metrics, "audit_entries_lost_total", found) == 5
    assert await value(metrics, "authentication_failures_total", found) == 1
    assert await value(metrics, "info", found, version=VERSION) == 1


async def test_two_aggregators_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    call_tool(one, "git", "log")
    assert await value(one, "request_bytes_total", server="git") == len('{"a":1}')
    assert await value(other, "request_bytes_total", server="git") is None


async def test_a_server_key_that_has_no_utf8_does_not_end_all_metrics() -> None:
    metrics = Metrics()
    call_tool(metrics, "half \ud83d", "log")
    assert await value(metrics, "request_bytes_total", server="half ?") == len('{"a":1}')


async def test_metrics_are_text_and_say_no_times_at_which_counters_were_made() -> None:
    metrics = Metrics()
    call_tool(metrics, "git", "log")
    assert CONTENT_TYPE.startswith("text/plain")
    assert b"_created" not in await metrics.render(Scrape())


async def test_names_that_have_quotes_and_newlines_are_read_back_as_they_are() -> None:
    metrics = Metrics()
    key = 'a"b\\c\n'
    call_tool(metrics, key, 'x"\\')
    labels = {"server": key, "tool": 'x"\\', "method": "tools/call", "outcome": "ok"}
    assert await value(metrics, "calls_total", **labels) == 1
    assert await value(metrics, "call_duration_seconds_bucket", server=key, tool='x"\\', le="+Inf") == 1
