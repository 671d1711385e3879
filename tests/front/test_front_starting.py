"""Requests that come while children are still starting."""

from __future__ import annotations

from pathlib import Path

from support.harness import config, connected, lean
from support.memory import build_aggregator


async def test_without_prefixes_a_resource_of_a_child_that_is_still_starting_is_waited_for(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    slow = lean(resources=[{"uri": "note:///b", "name": "b"}], wait_for_file=str(gate))
    app = build_aggregator(config(quick=lean(), slow=slow), prefix=False, strict=False, ready_wait=30)
    async with connected(app) as client:
        _, reading = client.begin("resources/read", {"uri": "note:///b"})
        await client.result("ping")
        assert not reading.done()
        gate.touch()
        assert (await reading)["result"]["contents"] == [{"uri": "note:///b", "text": "lean reads note:///b"}]
