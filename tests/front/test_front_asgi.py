"""What stands around FastMCP's HTTP app, for each of the ways in which it can be served."""

from fastmcp import Client
from fastmcp.client.transports import SSETransport
from fastmcp.server.event_store import EventStore
from mcp.server.streamable_http import EventMessage
from support.harness import config, lean
from support.memory import build_aggregator
from support.serving import served
from support.wire_events import event_client


async def test_calls_over_the_old_sse_transport_are_answered_though_their_requests_end_before() -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app, transport="sse") as front, Client(SSETransport(front.url)) as client:
        for _ in range(10):
            assert not (await client.call_tool_mcp("a:echo", {})).is_error


async def test_an_event_store_that_is_given_is_used_instead_of_ours() -> None:
    store = EventStore()
    app = build_aggregator(config(a=lean()))
    async with served(app, event_store=store, retry_interval=7) as front, event_client(front.url) as client:
        async with client.call("a:echo") as response:
            first, answer = await response.rest()
        assert first.retry == "7"
        replayed = []

        async def replay(event: EventMessage) -> None:
            replayed.append(event.event_id)

        await store.replay_events_after(first.event_id, replay)
    assert replayed == [answer.event_id]
