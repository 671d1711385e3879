"""A call that its client cancels ends at the child, and only that one."""

from __future__ import annotations

import pytest
from support.harness import RawClient
from ways import EVERY_WAY, Way, cancel

pytestmark = pytest.mark.asyncio(loop_scope="session")


@EVERY_WAY
async def test_a_cancelled_call_ends_at_the_child_and_another_goes_on(way: Way, client: RawClient) -> None:
    cancelled, kept = f"cancelled {way}", f"kept {way}"
    begun = {}
    for name in (cancelled, kept):
        script = [{"wait": name}]
        begun[name], _ = client.begin("tools/call", {"name": f"{way.server}:play", "arguments": {"script": script}})
    await client.report(way.server, lambda report: {cancelled, kept} <= set(report["waiting"]))
    cancel(client, begun[cancelled])
    report = await client.report(way.server, lambda report: cancelled not in report["waiting"])
    assert kept in report["waiting"]
    cancel(client, begun[kept])
    await client.report(way.server, lambda report: kept not in report["waiting"])
