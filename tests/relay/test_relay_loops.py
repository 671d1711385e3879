"""An aggregator behind itself: two that have each other among their servers."""

from __future__ import annotations

from typing import Any

from support.harness import config, lean, until
from support.memory import build_aggregator
from support.serving import served

ECHO = lean()
WAYS = [f"{'b:a:' * rounds}{name}" for rounds in range(4) for name in ("x:echo", "b:y:echo")]
"""What one of them lists in the end, but for the last: names that have come round three times are left out."""


async def test_the_lists_of_two_that_have_each_other_end_and_calls_take_all_ways(caplog: Any) -> None:
    # Each would wait for the other's first lists, which wait for its own.
    apps = [build_aggregator(config(**{key: ECHO}), strict=False, ready_wait=0) for key in ("x", "y")]
    async with served(apps[0]) as front, served(apps[1]) as back:
        await apps[1].reload(config(y=ECHO, a={"url": front.url}))
        await apps[0].reload(config(x=ECHO, b={"url": back.url}))
        client = await front.connect()
        while not set(WAYS[:-1]) <= set(names := await client.names()):
            await client.heard("notifications/tools/list_changed")
        assert {name for name in names if name.endswith(":echo")} == set(WAYS[:-1])
        for way in WAYS[:-1]:
            assert (await client.call(way, n=1))["arguments"] == {"n": 1}
        await until(lambda: "leads back to this aggregator" in caplog.text)
        assert {name for name in await client.names() if name.endswith(":echo")} == set(WAYS[:-1])
