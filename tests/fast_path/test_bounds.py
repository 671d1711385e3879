"""What callers can make the fast path keep."""

from __future__ import annotations

import pytest
from support.harness import config, connected, lean
from support.memory import build_aggregator

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
