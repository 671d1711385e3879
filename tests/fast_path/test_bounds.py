"""What callers can make the fast path keep."""

from __future__ import annotations

import pytest
from support.harness import config, connected, lean
from support.memory import build_aggregator
from support.wire_http import served

from fastmcp_aggregator.front.fast_path import path


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


async def test_so_many_schemas_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path, "_MOST_SCHEMAS", 2)
    app = build_aggregator(config(a=lean(tools=5)))
    async with served(app) as connect:
        client = await connect(modern=True)
        for number in range(5):
            await client.call(f"a:tool_{number}")
        assert app._backend.path_counts.answered >= 4
        assert 0 < len(app._pipeline.fast_path._header_schemas) <= 2
