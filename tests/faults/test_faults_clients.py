"""Clients that change their mind, or are gone: what becomes of their calls at the children."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.event_store import EventStore
from support.harness import RawClient, config, connected, lean, running, until
from support.serving import served

from fastmcp_aggregator import Aggregator, build_aggregator

pytestmark = pytest.mark.process

MORTAL_CLIENT = Path(__file__).parents[1] / "support" / "programs" / "mortal_client.py"


@asynccontextmanager
async def holding(*, child_era: str = "legacy", **settings: Any) -> AsyncIterator[tuple[Aggregator, RawClient]]:
    """An app whose child `a` holds calls until they are released, and a client that stays."""
    async with build_aggregator(config(a=lean(era=child_era)), **settings) as app, connected(app) as client:
        yield app, client


async def is_forgotten(app: Aggregator, client: RawClient) -> bool:
    """Wait until no call is in flight at the child; whether it was told, and holds none either."""
    await until(lambda: app.health()["a"].in_flight == 0)
    return bool(await client.call("a:release") == {"released": 0})


@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
@pytest.mark.parametrize("child_era", ["legacy", "modern"])
async def test_a_call_that_is_cancelled_is_cancelled_at_the_child(modern: bool, child_era: str) -> None:
    async with holding(child_era=child_era) as (app, other), connected(app, modern=modern) as client:
        request_id, held = client.begin("tools/call", {"name": "a:hold"})
        await until(lambda: app.health()["a"].in_flight == 1)
        client.notify("notifications/cancelled", {"requestId": request_id})
        assert await is_forgotten(app, other)
        assert not held.done()


async def test_a_client_on_stdio_that_is_killed_ends_the_program_and_its_calls_at_the_child(tmp_path: Path) -> None:
    document = tmp_path / "mcp.json"
    document.write_text(json.dumps(config(a=lean())))
    program = [sys.executable, "-m", "fastmcp_aggregator", str(document)]
    async with running(sys.executable, "-S", str(MORTAL_CLIENT), *program, handshake=False) as client:
        await client.said("holding")
        client.process.kill()
        await client.said("cancelled")
        await client.wait()
        assert b"Traceback" not in client.stderr


@pytest.mark.parametrize(
    ("modern", "options"),
    [(False, {}), (False, {"json_response": True}), (True, {}), (True, {"json_response": True})],
    ids=["legacy client", "legacy client of JSON answers", "modern client", "modern client of JSON answers"],
)
async def test_a_client_whose_connection_breaks_for_good_ends_its_call_at_the_child(
    modern: bool, options: dict[str, Any]
) -> None:
    async with holding(reconnect_wait=0.05) as (app, other), served(app, **options) as front:
        client = await front.connect(modern=modern)
        request_id, _ = client.begin("tools/call", {"name": "a:hold"})
        await until(lambda: app.health()["a"].in_flight == 1)
        client.hang_up(request_id)
        assert await is_forgotten(app, other)
        assert (await client.call("a:echo"))["tool"] == "echo"


async def test_where_answers_are_stored_a_legacy_client_may_come_back_for_its_own() -> None:
    async with holding() as (app, other), served(app, event_store=EventStore()) as front:
        client = await front.connect()
        request_id, _ = client.begin("tools/call", {"name": "a:hold"})
        await until(lambda: app.health()["a"].in_flight == 1)
        client.hang_up(request_id)
        await front.connect()  # by then the end of the connection has been noticed
        assert await other.call("a:release") == {"released": 1}
