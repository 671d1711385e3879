"""What a policy refuses is answered where it is refused: alike on both paths, and recorded alike."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.harness import config, connected, lean, until
from support.memory import build_aggregator
from support.serving import Served, served
from test_both_paths import request, routed

from fastmcp_aggregator import Aggregator

LIMITED = {"name": "a:echo", "arguments": {"x": 1}}


def without_times(told: Any) -> Any:
    """Without what differs from one call to the next."""
    return re.sub(r'"retryIn": [0-9.]+|[0-9.]+ s\b', "…", json.dumps(told, sort_keys=True))


def entries(audit: Path) -> list[dict[str, Any]]:
    """The lines of an audit log, without what differs from one call to the next."""
    read = [json.loads(line) for line in audit.read_text().splitlines()]
    others = ("time", "duration_ms", "id", "reason")
    return [{name: value for name, value in entry.items() if name not in others} for entry in read]


async def refused_by_post(front: Served, path: str, body: bytes, headers: dict[str, str]) -> Any:
    """Status, headers that say something and JSON of the response to a call beyond the limit."""
    async with front.browser() as http:
        common = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        for _ in range(2):
            response = await http.post(path, content=body, headers={**common, **headers})
        told = {name: response.headers.get(name) for name in ("x-request-id", "content-type")}
        return response.status_code, told, "retry-after" in response.headers, response.json()


async def refusal(front: Served, client: str) -> Any:
    """What the second call of a client is told."""
    if client == "json":
        return await refused_by_post(front, "/mcp/tools/call", json.dumps(LIMITED).encode(), {"x-request-id": "mine"})
    if client == "modern":
        body = request("tools/call", json.dumps(LIMITED), modern=True)
        return await refused_by_post(front, "/mcp", body, routed("tools/call", "a:echo"))
    session = await front.connect()
    await session.send("tools/call", LIMITED)
    return await session.error("tools/call", LIMITED)


@pytest.mark.usefixtures("nothing_takes_long")
@pytest.mark.parametrize("client", ["legacy", "modern", "json"])
async def test_a_call_beyond_the_rate_limit_is_answered_and_recorded_alike(client: str, tmp_path: Path) -> None:
    found = []
    for is_fast in (True, False):
        audit = tmp_path / f"audit-{is_fast}"
        app = build_aggregator(
            config(a=lean()), fast_path=is_fast, rate_limit=0.01, rate_burst=1, audit=str(audit), metrics=True
        )
        async with served(app) as front:
            recorded = app._backend.policies.record_calls()
            told = await refusal(front, client)
            async with front.browser() as http:
                metrics = (await http.get("/metrics")).text
            await is_quiet(app)
            latest = [(call.outcome, call.code, call.name) for call in recorded.latest(9, lambda _: True)]
            assert latest[0][:2] == ("denied", -32029)
        counted = [line for line in metrics.splitlines() if re.match(r"\w+_(calls|request_bytes|response_bytes)", line)]
        found.append((without_times(told), entries(audit), counted, latest))
        counts = app._backend.path_counts
        assert not counts.taken_over
        assert counts.answered >= is_fast  # the first call may come with the handshake
    assert found[0] == found[1]


async def is_quiet(app: Aggregator) -> None:
    await until(lambda: app._pipeline.in_flight._count == 0)
    assert {server.in_flight for server in app.health().values()} == {0}
    assert not app._pipeline.fast_path._cancellable


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.mark.parametrize("modern", [False, True])
async def test_wrong_arguments_are_refused_on_a_pipe(modern: bool) -> None:
    found = []
    for is_fast in (True, False):
        app = build_aggregator(
            config(a=lean(tool_extra={"inputSchema": SCHEMA})), fast_path=is_fast, validate_arguments=True
        )
        async with app, connected(app, modern=modern) as client:
            for _ in range(2):  # the schema is read with the first
                await client.call("a:echo", x=1)
            found.append([await client.error("tools/call", {"name": "a:echo", "arguments": {"x": "no"}}) for _ in "ab"])
            await is_quiet(app)
            assert await client.call("a:echo", x=2)
        assert not app._backend.path_counts.taken_over
    assert found[0] == found[1]


async def refused_as_busy(client: str, audit: Path, *, is_fast: bool) -> Any:
    """What a client is told of whom nothing more may wait at the server, and what is recorded of it."""
    bounds = {"max_concurrent_calls": 1, "max_waiting_requests": 2}
    app = build_aggregator(config(a=lean()), fast_path=is_fast, audit=str(audit), **bounds)
    async with served(app) as front:
        other = await front.connect(modern=True)
        await other.call("a:echo")
        other.begin("tools/call", {"name": "a:hold"})
        await until(lambda: app.health()["a"].in_flight == 1)
        other.begin("tools/call", {"name": "a:hold"})
        await until(lambda: app.health()["a"].waiting == 1)
        told = await refusal(front, client)
        usage = app._backend.runtime.children["a"].calls._queue.usage()  # type: ignore[union-attr]
        counts = app._backend.path_counts
        await other.close()
    assert "no more may wait" in json.dumps(told)
    assert usage.refused == 2
    assert counts.answered == (3 if is_fast else 0)
    return told, [entry for entry in entries(audit) if entry["outcome"] == "error"]


@pytest.mark.parametrize("client", ["legacy", "modern", "json"])
async def test_a_call_to_a_server_for_which_too_many_wait_is_refused_and_recorded_alike(
    client: str, tmp_path: Path
) -> None:
    fast, full = [await refused_as_busy(client, tmp_path / str(on), is_fast=on) for on in (True, False)]
    assert len(fast[1]) == 2
    assert fast == full
