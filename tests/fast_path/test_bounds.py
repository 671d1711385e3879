"""What callers can make the fast path keep, and that it keeps nothing of what it could not begin."""

from __future__ import annotations

import asyncio
import gc
from contextlib import nullcontext
from typing import Any

import pytest
from support.harness import config, connected, lean, until
from support.memory import build_aggregator
from support.serving import served

from fastmcp_aggregator.front.fast_path import http, path
from fastmcp_aggregator.library_internals import HeldSession
from fastmcp_aggregator.protocol import raw_json


@pytest.mark.parametrize("size", [0, 50_000])
async def test_only_short_envelopes_are_kept(size: int) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app, modern=True) as client:
        await client.call("a:echo")
        path._known_name.cache_clear()
        before = app._backend.path_counts.answered
        for number in range(3):
            await client.result("tools/list", {"_meta": {"own": f"{number}{'x' * size}"}})
        assert app._backend.path_counts.answered > before
        assert path._known_name.cache_info().currsize == (3 if size == 0 else 0)


def iterators() -> int:
    """How many there are; what is kept of calls on purpose has none."""
    gc.collect()
    return sum(type(each).__name__.endswith("iterator") for each in gc.get_objects())


@pytest.mark.parametrize("is_modern", [False, True])
async def test_calls_that_are_answered_leave_no_iterators_behind(is_modern: bool) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app, modern=is_modern) as client:
        for _ in range(20):
            await client.call("a:echo")
        before, answered = iterators(), app._backend.path_counts.answered
        for _ in range(200):
            await client.call("a:echo")
        assert app._backend.path_counts.answered == answered + 200
        assert iterators() - before < 20


@pytest.mark.parametrize("count", [100, 5000])
def test_a_request_whose_numbers_take_long_to_decode_is_declined(count: int) -> None:
    numbers = b",".join([b"1.%s5e-300" % (b"7" * 70)] * count)
    line = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"x":[%s]}}}' % numbers
    with pytest.raises(raw_json.Malformed) if count > 1000 else nullcontext():
        raw_json.read_request(line)


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a defect")


async def test_a_call_that_cannot_be_begun_takes_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    async with build_aggregator(config(a=lean())) as app, connected(app) as client:
        await client.call("a:echo")
        monkeypatch.setattr(path, "FastCall", fail)
        before = app._backend.path_counts.declined["unexpected"]
        await client.call("a:echo")
        assert app._backend.path_counts.declined["unexpected"] == before + 1
        assert app.health()["a"].in_flight == 0
        assert app._pipeline.in_flight._count == 0


async def test_a_request_that_cannot_be_begun_leaves_its_session_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []

    def hold(session: Any, loop: asyncio.AbstractEventLoop) -> HeldSession:
        held.append((session, session._requests_in_flight))
        return HeldSession(session, loop)

    app = build_aggregator(config(a=lean()))
    async with served(app) as front:
        client = await front.connect()
        await client.result("tools/list")
        monkeypatch.setattr(http, "HeldSession", hold)
        with monkeypatch.context() as broken:
            broken.setattr(http.Exchange, "encoded", fail)
            client.begin("tools/list", {})
            await until(lambda: bool(held))
        await client.call("a:echo")
        assert len(held) == 2
        assert held[0] == held[1]
