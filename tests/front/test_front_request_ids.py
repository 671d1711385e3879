"""A request with the id of one that is not answered yet: both are answered, and the second is refused."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_types import JSONRPCRequest
from support.credentials import Credentials
from support.harness import LEGACY, PATIENCE, config, connected, lean, until
from support.memory import build_aggregator
from support.serving import Served, served

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.front.fast_path.http import Exchange
from fastmcp_aggregator.front.stdio.conversation import Conversation
from fastmcp_aggregator.message_streams import encode, read_message

HELD = {"name": "a:hold", "arguments": {"n": 1}}
ECHO = {"name": "a:echo", "arguments": {"n": 2}}
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def request(request_id: Any, params: Any, method: str = "tools/call") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


async def session_of(front: Served, http: httpx2.AsyncClient) -> dict[str, str]:
    """The headers of a new session."""
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "twice", "version": "1"}}
    first = await http.post(front.url, json=request(0, hello, "initialize"), headers=ACCEPT)
    headers = {**ACCEPT, "mcp-session-id": first.headers["mcp-session-id"], "mcp-protocol-version": LEGACY}
    await http.post(front.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
    await http.post(front.url, json=request("list", {}, "tools/list"), headers=headers)
    return headers


def answer_in(response: httpx2.Response) -> Any:
    """The JSON-RPC response in an HTTP response."""
    if response.headers["content-type"].startswith("text/event-stream"):
        return json.loads([line[6:] for line in response.text.splitlines() if line.startswith("data: {")][-1])
    return response.json()


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("again", [7, "7", "07", " +7"])
async def test_in_a_session_over_http(fast_path: bool, again: Any) -> None:
    app = build_aggregator(config(a=lean()), fast_path=fast_path)
    async with served(app) as front, front.browser() as http:
        headers = await session_of(front, http)

        async def post(message: Any) -> httpx2.Response:
            return await http.post(front.url, json=message, headers=headers, timeout=PATIENCE)

        held = asyncio.create_task(post(request(7, HELD)))
        await until(lambda: app.health()["a"].in_flight == 1)
        refused = await post(request(again, ECHO))
        assert refused.status_code == 400
        assert answer_in(refused) == {"jsonrpc": "2.0", "id": again, "error": answer_in(refused)["error"]}
        assert answer_in(refused)["error"]["code"] == -32600
        await post(request(8, {"name": "a:release"}))
        assert json.loads(answer_in(await held)["result"]["content"][0]["text"])["held"] == {"n": 1}


@pytest.mark.parametrize("again", [7, "07"])
async def test_in_a_session_that_is_known_at_two_addresses(again: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the gate they are two callers: both requests are served, and neither ends what is the other's."""
    monkeypatch.setattr(Exchange, "answer_timeout", PATIENCE)
    app = build_aggregator(config(a=lean()), fast_path=True)
    elsewhere = httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(local_address="127.0.0.2"), timeout=PATIENCE)
    async with served(app) as front, front.browser() as http, elsewhere:
        headers = await session_of(front, http)
        before = app._backend.path_counts.answered

        async def post(message: Any, over: httpx2.AsyncClient) -> httpx2.Response:
            return await over.post(front.url, json=message, headers=headers, timeout=PATIENCE)

        held = asyncio.create_task(post(request(7, HELD), http))
        await until(lambda: app.health()["a"].in_flight == 1)
        cancellable = app._pipeline.fast_path._cancellable
        entries = dict(cancellable)
        assert len(entries) == 1
        answered = await post(request(again, ECHO), elsewhere)
        assert json.loads(answer_in(answered)["result"]["content"][0]["text"])["arguments"] == {"n": 2}
        assert cancellable == entries
        await post(request(8, {"name": "a:release"}), http)
        assert json.loads(answer_in(await held)["result"]["content"][0]["text"])["held"] == {"n": 1}
        assert not cancellable
        assert app._backend.path_counts.answered == before + 2
        assert app._backend.path_counts.declined["id in use"] == 1
        assert app._pipeline.in_flight._count == 0


async def test_who_knows_a_session_of_another_keeps_none_of_its_ids_busy(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, {"alice": None, "bob": None})
    app = build_aggregator(config(a=lean()), auth=credentials.auth, max_concurrent_requests=3)
    async with served(app) as front, front.browser() as http, AsyncExitStack() as stack:
        http.headers.update(credentials.of("alice"))
        of_alice = await session_of(front, http)
        admission, bob = app._backend.admission, Principal("key:bob").bare
        while await stack.enter_context(admission.slots.slot(bob)).acquire_within(0.01):
            pass  # until none of bob's turns is left
        as_bob = {**of_alice, **credentials.of("bob")}
        waiting = [asyncio.create_task(http.post(front.url, json=request(n, ECHO), headers=as_bob)) for n in (7, 8)]
        await until(lambda: admission.admitted.taken == 2)
        for number in (7, 8):
            answer = await http.post(front.url, json=request(number, ECHO), headers=of_alice)
            assert answer.status_code == 200
        await stack.aclose()
        assert [(await each).status_code for each in waiting] == [404, 404]


@pytest.mark.parametrize("fast_path", [True, False])
async def test_over_http_an_id_may_be_used_again_and_by_others(fast_path: bool) -> None:
    app = build_aggregator(config(a=lean()), fast_path=fast_path)
    async with served(app) as front, front.browser() as http:
        sessions = [await session_of(front, http) for _ in range(2)]

        async def calls(headers: dict[str, str]) -> None:
            for number in range(5):
                call = request(7, {"name": "a:echo", "arguments": {"n": number}})
                response = await http.post(front.url, json=call, headers=headers)
                assert json.loads(answer_in(response)["result"]["content"][0]["text"])["arguments"] == {"n": number}

        await asyncio.gather(*map(calls, sessions))


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize("first", [HELD, {**HELD, "_meta": {"progressToken": 1}}])
async def test_on_a_pipe(first: Any, fast_path: bool, modern: bool) -> None:
    app = build_aggregator(config(a=lean()), fast_path=fast_path)
    async with app, connected(app, modern=modern) as client:
        await client.call("a:echo")
        number, answer = client.begin("tools/call", first)
        await until(lambda: app.health()["a"].in_flight == 1)
        client.write({"id": number, "method": "tools/call", "params": client._enveloped(ECHO)})
        assert (await asyncio.wait_for(answer, PATIENCE))["error"]["code"] == -32600
        seen = len(client.messages)
        await client.call("a:release")
        await until(lambda: len(client.messages) == seen + 2)
        answers = [message for message in client.messages if message.get("id") == number]
        assert [json.loads(each["result"]["content"][0]["text"])["held"] for each in answers[1:]] == [{"n": 1}]


@pytest.mark.parametrize("fast_path", [True, False])
async def test_of_a_stream_that_is_open_on_a_pipe(fast_path: bool) -> None:
    app = build_aggregator(config(a=lean()), fast_path=fast_path)
    async with app, connected(app, modern=True) as client:
        number, _ = client.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await until(lambda: any(m.get("method", "").endswith("acknowledged") for m in client.messages))

        async def refused(method: str, params: Any) -> bool:
            seen = len(client.messages)
            client.write({"id": number, "method": method, "params": client._enveloped(params)})
            await until(lambda: len(client.messages) > seen)
            return bool(client.messages[-1].get("error", {}).get("code") == -32600)

        assert await refused("tools/call", ECHO)
        assert await refused("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        client.write({"method": "notifications/cancelled", "params": {"requestId": number}})
        assert not await refused("tools/call", ECHO)


def test_one_that_is_read_again_is_told_from_another_with_its_id() -> None:
    """What the fast path has begun and the full path takes over is read a second time, after what came meanwhile."""
    refused: list[Any] = []
    conversation = Conversation(lambda: False, refused.append)
    first, other = (encode(JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call", params=p)) for p in (HELD, ECHO))
    conversation.began(7)
    conversation.read_again(7, first)
    assert not conversation.read(read_message(other))
    assert conversation.read(read_message(first))
    assert not conversation.read(read_message(first))
    assert [(error.id, error.error.code) for error in refused] == [(7, -32600)] * 2
    conversation.answered(7)
    assert conversation.read(read_message(other))


def test_streams_are_open_and_nobody_waits_for_their_answers() -> None:
    conversation = Conversation(lambda: False, lambda _: None)
    for number, method in enumerate(("subscriptions/listen", "tools/call")):
        conversation.read(JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params={}))
    assert conversation.open == {0, 1}
    assert conversation.awaited == 1
    conversation.answered(1)
    assert conversation.awaited == 0
    conversation.answered(0)
    assert not conversation.open
    assert conversation.awaited == 0
