"""Progress that a child reports on a request, on its way to the client that asked for it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from support.harness import RawClient
from ways import EVERY_WAY, Way, ways

pytestmark = pytest.mark.asyncio(loop_scope="session")

REPORTS = [[1, 3, "one"], [2.5], [3, 3.0], [0], [10**20, 10**21, ""]]


def script() -> list[dict[str, Any]]:
    return [{"progress": report} for report in REPORTS]


def as_sent(token: Any) -> list[str]:
    """The notifications, as JSON: 1 is not 1.0 there."""
    fields = [dict(zip(("progress", "total", "message"), report, strict=False)) for report in REPORTS]
    return [json.dumps({"progressToken": token, **report}) for report in fields]


def heard(client: RawClient) -> list[str]:
    return [json.dumps(message["params"]) for message in client.notifications]


@EVERY_WAY
@pytest.mark.parametrize("token", ["the caller's", 0, 7])
async def test_progress_comes_as_it_was_sent_in_order_under_the_callers_own_token_and_before_the_result(
    way: Way, client: RawClient, token: Any
) -> None:
    client.messages.clear()
    await client.play(way.server, *script(), progressToken=token)
    *before, result = client.messages
    assert [message.get("method") for message in before] == ["notifications/progress"] * len(REPORTS)
    assert "result" in result
    assert heard(client) == as_sent(token)


REQUESTS = {
    "tools/call": lambda key: {"name": f"{key}:play", "arguments": {"script": script()}},
    "prompts/get": lambda key: {"name": f"{key}:play", "arguments": {"script": json.dumps(script())}},
    "resources/read": lambda key: {"uri": f"talk://{key}/play/{quote(json.dumps(script()))}"},
}


@ways(lambda way: way.server in ("old", "new"))
@pytest.mark.parametrize("method", REQUESTS)
async def test_progress_is_reported_on_every_kind_of_request(way: Way, client: RawClient, method: str) -> None:
    await client.result(method, {**REQUESTS[method](way.server), "_meta": {"progressToken": "t"}})
    assert heard(client) == as_sent("t")


@EVERY_WAY
async def test_nobody_who_has_not_asked_for_progress_is_told_any(way: Way, client: RawClient) -> None:
    await client.play(way.server, *script())
    assert client.notifications == []


@EVERY_WAY
async def test_progress_of_two_requests_under_one_token_of_two_callers_is_not_mixed(
    way: Way, client: RawClient, fronts: Any
) -> None:
    other = await fronts.connect(modern=way.is_modern)
    await client.play(way.server, {"progress": [1]}, progressToken="same")
    await other.play(way.server, {"progress": [2]}, progressToken="same")
    assert [message["params"]["progress"] for message in client.notifications] == [1]
    assert [message["params"]["progress"] for message in other.notifications] == [2]
    await other.close()
