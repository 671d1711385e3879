"""Attacks on what is held between requests: calls that wait for answers, instances, what replicas share in Redis."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis.asyncio
from support.wire import Message, until_answered
from support.wire_http import HttpClient

from attack.rooms import Hub, Team, jwt_for
from attack.table import attack

HEADING = "What is held between requests"
_ASKS: dict[str, Any] = {"modern": True, "capabilities": {"roots": {}, "elicitation": {"form": {}}}}


def _play(server: str = "shared", question: str = "a") -> Message:
    return {"name": f"{server}:play", "arguments": {"script": [{"ask": {question: {"method": "roots/list"}}}]}}


def _back(params: Message, round_: Message, **more: Any) -> Message:
    answers = {name: {"roots": []} for name in round_["inputRequests"]}
    return {**params, "requestState": round_["requestState"], "inputResponses": answers, **more}


async def _held(room: Team, group: str = "solo") -> tuple[HttpClient, Message, Message]:
    """A call of ann's that waits for her answer, and what she was asked."""
    ann = await room.one.connect("ann", group, **_ASKS)
    params = _play("asking")
    return ann, params, await ann.result("tools/call", params)


async def _is_over(client: HttpClient, params: Message) -> bool:
    return "the call that it continues is over" in (await client.send("tools/call", params)).get("error", {}).get(
        "message", ""
    )


@attack(
    "held-principal",
    "another's `requestState`, by key or token of the same name, at both replicas",
    "over; still its owner's",
)
async def principal(room: Team) -> str:
    ann, params, round_ = await _held(room)
    for hub in (room.one, room.other):
        for who in ("bob", "root", jwt_for("ann", "solo"), jwt_for("bob", "solo")):
            thief = await hub.connect(who, "solo", **_ASKS)
            kind = "a token of her name" if who.startswith("ey") else who
            assert await _is_over(thief, _back(params, round_)), f"{kind}: the call is continued"
    assert (await ann.result("tools/call", _back(params, round_)))["resultType"] == "complete", (
        "the owner's call is lost"
    )
    return "over for 4 thieves at 2 replicas, then answered to its owner"


@attack(
    "held-request",
    "one's own `requestState` with another tool, arguments or group",
    "over",
)
async def request(room: Team) -> str:
    ann, params, round_ = await _held(room)
    root = await room.one.connect("root", None, **_ASKS)
    for number, other in enumerate(
        (_play("asking", "b"), {**params, "name": "asking:echo"}, {**params, "arguments": {}})
    ):
        assert await _is_over(ann, _back(other, round_)), f"variation {number}"
    assert await _is_over(root, _back(params, round_)), "another group's endpoint"
    assert (await ann.result("tools/call", _back(params, round_)))["resultType"] == "complete", "the call is lost"
    return "over; its own request is answered"


@attack("held-twice", "a `requestState` twice, at once, at two replicas", "good once")
async def twice(room: Team) -> str:
    ann, params, round_ = await _held(room)
    other = await room.other.connect("ann", "solo", **_ASKS)
    sent = [client.send("tools/call", _back(params, round_)) for client in (ann, other, ann, other)]
    answers = await asyncio.gather(*sent)
    assert sum("result" in answer for answer in answers) == 1, "answered more than once, or never"
    assert await _is_over(other, _back(params, round_)), "good again"
    return "good once"


@attack(
    "held-forged",
    "states guessed, cut, of other replicas, with wildcards",
    "over or refused, no message to others",
)
async def forged(room: Team) -> str:
    _, params, round_ = await _held(room)
    state = round_["requestState"]
    thief = await room.one.connect("bob", "solo", **_ASKS)
    odd: list[Any] = [
        state[:-1],
        state + "x",
        state.upper(),
        state.replace("held-", "held-*"),
        "held-all.x",
        "held-",
        "held-" + "0" * 16 + ".x",
    ]
    odd += ["x" * 100_000, "", "\0", "held-\ud7ff.x", "held-../x.y", "held-" + "a" * 16 + "." * 1000]
    for value in odd:
        response = await thief.send("tools/call", {**_back(params, round_), "requestState": value})
        assert "result" not in response or response["result"].get("resultType") == "input_required", (
            f"{str(value)[:12]!r}"
        )
    for value in (1, None, {}, [state], True):
        response = await thief.send("tools/call", {**_back(params, round_), "requestState": value})
        assert "complete" not in json.dumps(response.get("result", "")), f"{str(value)[:12]!r}"
    return f"{len(odd) + 5} states, none is good"


@attack(
    "held-restart",
    "another's `requestState` and session after their replica was killed and restarted",
    "the call is over; the session is its owner's",
)
async def restart(room: Team) -> str:
    async with room.replica("third") as hub:
        ann = await hub.connect("ann", "solo", **_ASKS)
        params = _play("asking")
        round_ = await ann.result("tools/call", params)
        session = (await hub.connect("ann", "own", modern=False))._session
        hub.process.kill()
        await hub.server.process.wait()
        await hub.stack.aclose()
    async with room.replica("third") as again:
        for hub in (again, room.one, room.other):
            for who in ("bob", jwt_for("ann", "solo"), "ann"):
                back = await hub.connect(who, "solo", **_ASKS)
                assert await _is_over(back, _back(params, round_)), f"{who}: the call is continued"
        for who, status in (("bob", 404), (jwt_for("ann", "own"), 404), ("ann", 200), ("bob", 404)):
            listed = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            headers = {**session, "Accept": "application/json, text/event-stream"}
            answer = await again.ask("POST", "/groups/own/mcp", who, json=listed, headers=headers)
            assert answer.status_code == status, f"{who}: {answer.status_code}"
        await again.stack.aclose()
    await _set_free(room)
    return "over at 3 replicas, for its owner too; the session: 404 for 2 others, 200 for its owner"


@attack(
    "held-answers",
    "odd answers: other names, no objects, huge, nested, prototypes",
    "refused or asked again",
)
async def answers(room: Team) -> str:
    ann, params, round_ = await _held(room)
    odd: list[Any] = [1, "x", [], None, {"__proto__": {}}, {"x": 1}, dict.fromkeys(round_["inputRequests"], 1)]
    for value in odd:
        response = await ann.send("tools/call", {**_back(params, round_), "inputResponses": value})
        round_ = (
            response.get("result", round_)
            if response.get("result", {}).get("resultType") == "input_required"
            else round_
        )
    done = await ann.send("tools/call", _back(params, round_))
    assert done.get("result", {}).get("resultType") == "complete", "the call is lost"
    return "the call is answered in the end"


@attack(
    "held-many",
    "one principal leaves as many calls held as it can",
    "others are served and asked",
)
async def many(room: Team) -> str:
    thief = await room.one.connect("eve", "solo", **_ASKS)
    sent = [thief.begin("tools/call", _play("asking"))[1] for _ in range(120)]
    await asyncio.wait(sent, timeout=10)
    ann = await room.one.connect("ann", "solo", **_ASKS)
    try:
        async with asyncio.timeout(20):
            await ann.call("asking:echo")
            params = _play("asking")
            round_ = await ann.result("tools/call", params)
            await ann.result("tools/call", _back(params, round_))
    except TimeoutError:
        raise AssertionError("another principal waits for its turn at the server") from None
    finally:
        for answer in sent:
            answer.cancel()
        await thief.close()
        await _set_free(room)
    return "others are served"


async def _set_free(room: Team) -> None:
    """End what is held at the server: its connection is lost."""
    await room.asking.stop()
    await room.asking.start()
    await asyncio.sleep(1)


@attack("own-shared", "what another session left in an isolated server", "an instance for each session")
async def own_shared(room: Team) -> str:
    clients = [await room.one.connect(who, "own", modern=False) for who in ("ann", "ann", "bob")]
    pids = [(await client.call("own:pid"))["pid"] for client in clients]
    assert len(set(pids)) == 3, "two sessions share an instance"
    await clients[0].play(
        "own", {"later": [{"say": "notifications/message", "params": {"level": "info", "data": "of ann"}}]}
    )
    reported = await clients[2].call("own:report")
    assert "of ann" not in json.dumps(reported), "state of another session"
    return "three sessions, three processes"


@attack("own-stolen", "another's instance, by its session or a token of the same name", "404, or one's own instance")
async def own_stolen(room: Team) -> str:
    ann = await room.one.connect("ann", "own", modern=False)
    mine = await ann.call("own:pid")
    for who in ("bob", jwt_for("ann", "own")):
        answer = await room.one.ask(
            "POST",
            "/groups/own/mcp",
            who,
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "own:pid", "arguments": {}}},
            headers={"Accept": "application/json, text/event-stream", **ann._session},
        )
        assert answer.status_code in (403, 404), f"{answer.status_code}"
        modern = await room.one.connect(who, "own")
        answered = await modern.send("tools/call", {"name": "own:pid", "arguments": {}})
        assert json.dumps(mine["pid"]) not in json.dumps(answered), "the instance was reached"
    return "never reached"


@attack(
    "own-modern-name",
    "a token with a key's name at an isolated server, without sessions",
    "an instance of its own",
    finding=15,
)
async def own_modern_name(room: Team) -> str:
    key, token_ = await room.one.connect("ann", "own"), await room.one.connect(jwt_for("ann", "own"), "own")
    pids = [(await client.call("own:pid"))["pid"] for client in (key, token_)]
    assert pids[0] != pids[1], "both use one instance"
    return "two instances"


@attack(
    "own-exhausted",
    "one principal opens sessions until no instance is left",
    "others still get one",
)
async def own_exhausted(room: Team) -> str:
    thieves = [await room.other.connect("bob", "own", modern=False) for _ in range(5)]
    taken = [await thief.send("tools/call", {"name": "own:pid", "arguments": {}}) for thief in thieves]
    assert sum("result" in answer for answer in taken) <= 3, "more instances than `max_isolated_sessions`"
    ann = await room.other.connect("ann", "own", modern=False)
    answer = await ann.send("tools/call", {"name": "own:pid", "arguments": {}})
    assert "result" in answer, "another principal gets none"
    return "bounded, and the other gets one"


async def _three_others_get_one(room: Team) -> None:
    for who in ("ann", "eve", "root"):
        client = await room.other.connect(who, "own", modern=False)
        answer = await client.send("tools/call", {"name": "own:pid", "arguments": {}})
        assert "result" in answer, f"{who} gets none"


@attack(
    "own-gives-way",
    "one principal holds all its instances in sessions that do not end",
    "its longest unused one gives way, and is told",
)
async def own_gives_way(room: Team) -> str:
    bobs = [await room.other.connect("bob", "own", modern=False) for _ in range(3)]
    for bob in bobs:
        await bob.call("own:pid")
    await _three_others_get_one(room)
    told = await bobs[0].send("tools/call", {"name": "own:pid", "arguments": {}})
    assert "another caller" in told.get("error", {}).get("message", ""), "its session is not told"
    await bobs[2].call("own:pid")
    return "three others get one each"


@attack(
    "own-subscribed",
    "the same with a subscription in each session",
    "only calls in flight keep more than is fair",
)
async def own_subscribed(room: Team) -> str:
    bobs = [await room.other.connect("bob", "own", modern=False) for _ in range(3)]
    for bob in bobs:
        await bob.result("resources/subscribe", {"uri": "note://own//a"})
    await _three_others_get_one(room)
    await bobs[0].heard("notifications/resources/updated")
    told = await bobs[0].send("tools/call", {"name": "own:pid", "arguments": {}})
    assert "another caller" in told.get("error", {}).get("message", ""), "its session is not told"
    await bobs[2].call("own:pid")
    return "three others get one each"


@attack(
    "own-stopped",
    "calls of a stopped isolated server, in all kinds of sessions",
    "it stays stopped",
)
async def own_stopped(room: Team) -> str:
    old = await room.one.connect("root", "own", modern=False)
    await old.call("own:pid")
    assert (await room.one.ask("POST", "/stop/own", "chief")).status_code == 202
    try:
        new = await room.one.connect("bob", "own", modern=False)
        modern = await room.one.connect("eve", "own")
        for _ in range(3):
            for client in (old, new, modern):
                answer = await client.send("tools/call", {"name": "own:pid", "arguments": {}})
                assert "error" in answer, "it serves again"
            await room.one.ask("POST", "/wake/own", "ann")
            assert (await room.one.call("ann", "own", "own:pid")).status_code != 200, "it serves again"
    finally:
        await room.one.ask("POST", "/restart/own", "chief")
    await until_answered(lambda: room.one.call("ann", "own", "own:pid"), lambda answer: answer.status_code == 200)
    return "it stays stopped"


@attack(
    "own-outlives",
    "a session ends while its instance works or starts",
    "the instance ends",
)
async def own_outlives(room: Team) -> str:
    async with _instances(room.other) as count:
        for _ in range(6):
            client = await room.other.connect("ann", "own", modern=False)
            client.begin("tools/call", {"name": "own:play", "arguments": {"script": [{"wait": "for ever"}]}})
            await asyncio.sleep(0.05)
            await client.close()
        await until_answered(count, lambda n: n == 0)
    return "no instance is left"


@asynccontextmanager
async def _instances(hub: Hub) -> AsyncIterator[Any]:
    async def count() -> int:
        servers = (await hub.ask("GET", "/status", "root")).json()["servers"]
        return int(servers["own"]["instances"])

    yield count


# Redis.


@asynccontextmanager
async def _redis(room: Team) -> AsyncIterator[Any]:
    client = redis.asyncio.from_url(room.redis.url)
    try:
        yield client
    finally:
        await client.aclose()


async def _channels(client: Any) -> list[str]:
    return [name.decode() for name in await client.pubsub_channels("fastmcp-aggregator:*")]


@attack(
    "redis-forged",
    "messages of a replica that does not exist",
    "not taken: not sealed",
    finding=31,
)
async def redis_forged(room: Team) -> str:
    ann, params, round_ = await _held(room)
    async with _redis(room) as client:
        inboxes = [name for name in await _channels(client) if not name.endswith(":all")]
        spy = client.pubsub()
        own = secrets.token_hex(8)
        await spy.subscribe(f"{inboxes[0].rpartition(':')[0]}:{own}")
        for account in (["ann", ["both", "own", "red", "solo"]], "ann", None):
            question = {
                "state": round_["requestState"],
                "principal": account,
                "request": ["tools/call", params],
                "answers": {},
            }
            for inbox in inboxes:
                await client.publish(inbox, json.dumps({"from": own, "ask": 1, "question": question}))
        got = [await spy.get_message(timeout=0.5) for _ in range(8)]
        answered = [message for message in got if message and message["type"] == "message"]
    assert not answered, "a message that is not sealed was answered"
    assert (await ann.result("tools/call", _back(params, round_)))["resultType"] == "complete", "the call is lost"
    return "no answer"


@attack(
    "redis-garbage",
    "noise, cut, huge, deep and wrongly typed messages and values",
    "a log line a minute at most",
    finding=31,
)
async def redis_garbage(room: Team) -> str:
    deep = b"[" * 900 + b"]" * 900
    odd = [
        b"",
        b"x",
        b"{}",
        b"[]",
        b"null",
        b"\xff" * 1000,
        b'{"from":1}',
        b"9" * 5000,
        b'{"from":"%s"' % (b"0" * 16),
        b"[" * 100_000,
    ]
    sender = b'"from":"0123456789abcdef"'
    for tail in (
        b'"ask":1',
        b'"ask":1,"question":1',
        b'"ask":2,"question":{}',
        b'"ask":3,"question":{"state":1,"principal":1,"request":1,"answers":1}',
        b'"ask":4,"question":{"state":"x","principal":%s,"request":%s,"answers":{}}' % (deep, deep),
        b'"ask":5,"question":{"state":{},"principal":[{}],"request":[{}],"answers":[]}',
        b'"notices":1',
        b'"notices":{}',
        b'"notices":[1,null,{"kind":[]}]',
        b'"notices":[{"kind":"lists","server":"remote"}]',
        b'"notices":[%s]' % b",".join([b'{"kind":"updated","server":"remote","uri":"\\ud800"}'] * 5000),
        b'"notices":[],"missed":true',
        b'"reply":1',
        b'"reply":1,"answer":1',
        b'"part":1',
        b'"cancel":1',
        b'"cancel":{}',
    ):
        odd.append(b"{" + sender + b"," + tail + b"}")
    lines = len(room.one.log.splitlines())
    async with _redis(room) as client, room.one.watched(grows_by=64):
        for channel in await _channels(client):
            for value in odd:
                await client.publish(channel, value)
        for key in [
            key async for key in client.scan_iter("fastmcp-aggregator:*") if not key.endswith(b"request-state-key")
        ]:
            await client.delete(key)
            await client.set(key, b"\xff not a hash")
        for _ in range(3):
            answer = await room.one.call("ann", "red", "red:echo")
            assert answer.status_code == 200, f"a call: {answer.status_code}"
        for key in [
            key async for key in client.scan_iter("fastmcp-aggregator:*") if not key.endswith(b"request-state-key")
        ]:
            await client.delete(key)
    said = [line for line in room.one.log.splitlines()[lines:] if not line.startswith("[")]
    assert len(said) <= 5, f"{len(said)} lines in the log"
    return "calls go on, the log is short"


@attack("redis-replayed", "every message between replicas, sent again", "a state is good once", finding=31)
async def redis_replayed(room: Team) -> str:
    _, params, round_ = await _held(room)
    async with _redis(room) as client:
        spy = client.pubsub()
        await spy.psubscribe("fastmcp-aggregator:*")
        other = await room.other.connect("ann", "solo", **_ASKS)
        assert (await other.result("tools/call", _back(params, round_)))["resultType"] == "complete"
        heard = [
            message
            for _ in range(20)
            if (message := await spy.get_message(timeout=0.1)) and message["type"] == "pmessage"
        ]
        assert heard, "nothing was heard"
        for message in heard * 3:
            await client.publish(message["channel"], message["data"])
    assert await _is_over(other, _back(params, round_)), "good again"
    return "good once"


@attack("redis-down", "Redis hangs, then is gone", "calls go on; limits and keys hold")
async def redis_down(room: Team) -> str:
    room.redis.pause()
    try:
        assert await room.one.status_of("GET", "/groups", "gone") == 401, "let in"
        async with asyncio.timeout(30):
            answer = await room.one.call("ann", "red", "red:echo")
        assert answer.status_code == 200, f"a call: {answer.status_code}"
        spent = [(await room.one.call("few", "red", "red:echo")).status_code for _ in range(6)]
        assert 429 in spent, "there is no limit"
    finally:
        room.redis.go_on()
    return "calls go on, limits and keys hold"
