"""Attacks on what belongs to somebody else: sessions, streams, events, progress, cancellation."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import httpx2
from support.wire import LEGACY, until

from attack.rooms import Hub, Team, jwt_for
from attack.table import attack

HEADING = "What belongs to somebody else"
_ACCEPT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": LEGACY}


def _of(session: str) -> dict[str, str]:
    return {**_ACCEPT, "Mcp-Session-Id": session}


def _call(name: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": {}, **params}}


@attack(
    "session-hijack",
    "another's session with one's own key, by POST, GET and DELETE",
    "404 and a line in the audit log; it goes on",
    finding=10,
)
async def hijack(room: Team) -> str:
    ann = await room.one.connect("ann", "both", modern=False)
    session = ann._session["Mcp-Session-Id"]
    before = len(room.one.audit())
    thieves = ["bob", "root", jwt_for("ann", "both"), jwt_for("x", "both")]
    for who in thieves:
        for method in ("POST", "GET", "DELETE"):
            body = {"json": _call("shared:report")} if method == "POST" else {}
            headers = {**room.one.credentials(who), **_of(session)}
            async with (
                httpx2.AsyncClient(base_url=room.one.origin, trust_env=False) as http,
                http.stream(method, "/groups/both/mcp", headers=headers, **body) as response,
            ):
                kind = "a token with her name" if who == thieves[2] else who if len(who) < 9 else "a token"
                assert response.status_code in (403, 404), f"{method} with {kind}: {response.status_code}"
    assert await ann.names(), "the session is gone"
    await asyncio.sleep(0.3)
    lines = [entry for entry in room.one.audit()[before:] if entry["event"] == "denied"]
    assert len(lines) >= len(thieves), f"{len(lines)} lines in the audit log for {3 * len(thieves)} attempts"
    return "404 for 4 thieves, with lines"


@attack("session-other-group", "one's own session at another group's address", "404")
async def other_group(room: Team) -> str:
    ann = await room.one.connect("ann", "both", modern=False)
    for group in ("red", "own"):
        answer = await room.one.ask(
            "POST", f"/groups/{group}/mcp", "ann", json=_call("red:echo"), headers=_of(ann._session["Mcp-Session-Id"])
        )
        assert answer.status_code == 404, f"{group}: {answer.status_code}"
    return "404"


@attack(
    "session-forged",
    "guessed, empty, long, binary, doubled session ids",
    "400 or 404, none is opened",
)
async def forged(room: Team) -> str:
    odd = [uuid.uuid4().hex, "0" * 32, "x" * 5000, "../..", "*", "null", "\x7f", "%00", "a,b"]
    for session in odd:
        for method in ("POST", "GET", "DELETE"):
            body = {"json": _call("red:echo")} if method == "POST" else {}
            answer = await room.one.ask(method, "/groups/red/mcp", "ann", headers=_of(session), **body)
            assert answer.status_code in (400, 404), f"{method} {session[:12]!r}: {answer.status_code}"
    body = json.dumps(_call("red:echo"))
    for pair in ("mcp-session-id: a\r\nmcp-session-id: b", "mcp-session-id:", "mcp-session-id: a\r\n b"):
        got = await room.one.raw(
            f"POST /groups/red/mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {room.one.keys['ann']}\r\n"
            f"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\nconnection: close\r\n"
            f"{pair}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert got.split()[1] in (b"400", b"404"), f"{pair!r}: {got[:30]!r}"
    return f"400 or 404 for {len(odd) + 3} ids"


@attack(
    "session-ids",
    "requests under another's session with ids that its owner will use",
    "the owner is answered",
    room="small",
)
async def taken_ids(hub: Hub) -> str:
    ann = await hub.connect("ann", modern=False)
    session = _of(ann._session["Mcp-Session-Id"])

    def post(who: str, number: int) -> asyncio.Task[httpx2.Response]:
        body = {**_call("b:echo"), "id": number}
        return asyncio.create_task(hub.ask("POST", "/mcp", who, json=body, headers=session))

    waiting = [asyncio.create_task(hub.call("bob", None, "a:hold")) for _ in range(8)]
    await asyncio.sleep(1)
    thieves = [post("bob", number) for number in range(200, 206)]
    await asyncio.sleep(0.5)
    try:
        for number in range(200, 206):
            answer = await asyncio.wait_for(post("ann", number), 20)
            assert answer.status_code == 200, f"the owner gets {answer.status_code}"
            assert "error" not in answer.text, f"the owner gets {answer.text[:100]}"
    finally:
        await hub.call("ann", None, "a:release")
        for task in (*waiting, *thieves):
            task.cancel()
        await asyncio.gather(*waiting, *thieves, return_exceptions=True)
    return "6 of 6 are answered"


@attack(
    "session-spellings",
    "two calls of a session whose ids are one: 7 and `07`, ` 7`, `+7`, `7`",
    "the second is refused; both servers go on",
    room="small",
)
async def spelled_ids(hub: Hub) -> str:
    ann = await hub.connect("ann", modern=False)
    session = _of(ann._session["Mcp-Session-Id"])

    def post(number: object) -> asyncio.Task[httpx2.Response]:
        body = {**_call("a:hold"), "id": number}
        return asyncio.create_task(hub.ask("POST", "/mcp", "ann", json=body, headers=session))

    for again in ("07", " 7", "+7", "7"):
        first = post(7)
        await asyncio.sleep(0.5)
        second = post(again)
        await asyncio.sleep(0.5)
        try:
            async with asyncio.timeout(10):
                assert (await hub.call("bob", None, "a:release")).status_code == 200, f"{again!r}: the other is refused"
                statuses = [(await each).status_code for each in (first, second)]
                assert (await hub.call("bob", None, "a:echo")).status_code == 200, f"{again!r}: the other is refused"
        except TimeoutError:
            raise AssertionError(f"{again!r}: an answer is lost") from None
        finally:
            first.cancel()
            second.cancel()
        assert statuses == [200, 400], f"{again!r}: {statuses}"
    return "400 for each of 4 spellings"


@attack("session-fixed", "a session id of one's choice at `initialize`", "the hub makes its own")
async def fixed(room: Team) -> str:
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    answer = await room.one.ask("POST", "/groups/red/mcp", "ann", json=body, headers=_of("f" * 32))
    assert answer.headers.get("mcp-session-id") != "f" * 32, "the id was taken"
    return "refused" if answer.status_code >= 400 else "another id"


@attack("session-sse", "messages posted into another's SSE session", "404, it goes on")
async def sse(room: Team) -> str:
    ann = await room.one.connect_sse("ann", "both")
    path = ann.endpoint.removeprefix(room.one.origin)
    for who in ("bob", "root", jwt_for("ann", "both")):
        for target in (path, path.replace("/groups/both", "")):
            answer = await room.one.ask("POST", target, who, json=_call("shared:report"))
            assert answer.status_code in (403, 404), f"{answer.status_code}"
    assert await ann.names(), "the session is gone"
    return "404"


@attack(
    "session-events",
    "`Last-Event-ID` of another's stream",
    "nothing is sent",
)
async def events(room: Team) -> str:
    ann = await room.one.connect("ann", "both", modern=False)
    ids = await _event_ids(room.one, "ann", ann._session["Mcp-Session-Id"])
    assert ids, "no event has an id"
    bob = await room.one.connect("bob", "both", modern=False)
    for event in ids:
        for session in (bob._session["Mcp-Session-Id"], ann._session["Mcp-Session-Id"], None):
            headers = {**(_of(session) if session else _ACCEPT), "Last-Event-ID": event}
            got = await _some_of(room.one, "bob", headers)
            assert "ann-s own" not in got, "events of another's answer"
            assert "notifications/tools/list_changed" not in got, "events of another's session"
    return "nothing is sent"


async def _event_ids(hub: Hub, who: str, session: str) -> list[str]:
    """The ids of the events of a call's stream, and of the session's own stream."""
    ids: list[str] = []
    script = [{"progress": [1, 2, "ann-s own"]}, {"changed": "tools"}]
    body = _call("shared:play", arguments={"script": script}, _meta={"progressToken": 1})
    async with httpx2.AsyncClient(base_url=hub.origin, trust_env=False, headers=hub.credentials(who)) as http:
        listening = asyncio.create_task(_collected(http, session, ids))
        async with http.stream("POST", "/groups/both/mcp", json=body, headers=_of(session)) as response:
            async for line in response.aiter_lines():
                if line.startswith("id:"):
                    ids.append(line[3:].strip())
        await asyncio.sleep(0.5)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    return ids


async def _collected(http: httpx2.AsyncClient, session: str, ids: list[str]) -> None:
    async with http.stream("GET", "/groups/both/mcp", headers=_of(session), timeout=None) as response:
        async for line in response.aiter_lines():
            if line.startswith("id:"):
                ids.append(line[3:].strip())


async def _some_of(hub: Hub, who: str, headers: dict[str, str]) -> str:
    """What a stream brings within a moment."""
    got = ""
    async with httpx2.AsyncClient(base_url=hub.origin, trust_env=False, headers=hub.credentials(who)) as http:
        try:
            async with asyncio.timeout(0.7), http.stream("GET", "/groups/both/mcp", headers=headers) as response:
                async for part in response.aiter_text():
                    got += part
        except TimeoutError:
            pass
    return got


@attack(
    "cancel-others",
    "`notifications/cancelled` for others' requests",
    "their calls go on",
)
async def cancel_others(room: Team) -> str:
    ann, bob = [await room.one.connect(who, "both", modern=False) for who in ("ann", "bob")]
    request_id, going = ann.begin("tools/call", {"name": "shared:play", "arguments": {"script": [{"wait": "cancel"}]}})
    await bob.report("shared", lambda report: "cancel" in report["waiting"])
    for number in range(request_id + 5):
        for value in (number, str(number)):
            bob.notify("notifications/cancelled", {"requestId": value, "reason": "x"})
    modern = await room.one.connect("bob", "both")
    for number in range(request_id + 5):
        modern.notify("notifications/cancelled", {"requestId": number})
    await bob.posted()
    assert not going.done(), "it was cancelled"
    await bob.call("shared:open", gate="cancel")
    assert "result" in await going, "it was cancelled"
    return "the call is answered"


@attack(
    "progress-others",
    "another's progress token; progress from a client",
    "each hears its own alone",
)
async def progress_others(room: Team) -> str:
    ann, bob = [await room.one.connect(who, "both", modern=modern) for who, modern in (("ann", True), ("bob", False))]
    script = [{"progress": [1, 2, "first"]}, {"wait": "progress"}, {"progress": [2, 2, "ann alone"]}]
    going = ann.begin(
        "tools/call", {"name": "shared:play", "arguments": {"script": script}, "_meta": {"progressToken": "t"}}
    )[1]
    await bob.report("shared", lambda report: "progress" in report["waiting"])
    params = {"name": "shared:play", "arguments": {"script": [{"wait": "bob"}]}, "_meta": {"progressToken": "t"}}
    others = bob.begin("tools/call", params)[1]
    await bob.report("shared", lambda report: "bob" in report["waiting"])
    for value in ("t", 1, 2, 3, 4, 5):
        bob.notify("notifications/progress", {"progressToken": value, "progress": 99, "message": "of bob"})
    await asyncio.sleep(0.5)
    for gate in ("progress", "bob"):
        await bob.call("shared:open", gate=gate)
    await asyncio.gather(going, others)
    await until(lambda: "ann alone" in json.dumps(ann.notifications))
    assert "ann alone" not in json.dumps(bob.messages), "bob has heard ann's progress"
    assert "of bob" not in json.dumps(ann.messages), "ann has heard what bob said"
    return "each hears its own"


@attack("answer-others", "answers to questions asked of another, with every id", "nobody's answer")
async def answer_others(room: Team) -> str:
    ann = await room.one.connect("ann", "own", modern=False, capabilities={"roots": {}})
    bob = await room.one.connect("bob", "own", modern=False, capabilities={"roots": {}})
    going = ann.begin(
        "tools/call", {"name": "own:play", "arguments": {"script": [{"ask": {"q": {"method": "roots/list"}}}]}}
    )[1]
    asked = await ann.question("roots/list")
    evil = {"roots": [{"uri": "file:///evil"}]}
    for value in (asked["id"], str(asked["id"]), 0, 1, 2):
        bob.write({"id": value, "result": evil})
    await bob.posted()
    assert not going.done(), "another's answer was taken"
    ann.write({"id": asked["id"], "result": {"roots": []}})
    assert "evil" not in json.dumps(await going), "another's answer was taken"
    return "only the asked client's answer is taken"


@attack("update-others", "updates of a resource that only another subscribes to", "only subscribers hear of them")
async def update_others(room: Team) -> str:
    ann, bob = [await room.one.connect(who, "both", modern=False) for who in ("ann", "bob")]
    await ann.result("resources/subscribe", {"uri": "note://shared//a"})
    await bob.play("shared", {"update": "note:///a"})
    await ann.heard("notifications/resources/updated")
    assert not [n for n in bob.notifications if n["method"] == "notifications/resources/updated"]
    return "only the subscriber hears of it"


@attack(
    "late-message",
    "a shared server logs and asks after answering ann, while bob's call is in flight",
    "nobody gets it, nobody is asked",
    finding=2,
)
async def late(room: Team) -> str:
    about: dict[str, Any] = {
        "modern": False,
        "capabilities": {"elicitation": {"form": {}}, "roots": {}, "sampling": {}},
    }
    ann, bob = await room.one.connect("ann", "both", **about), await room.one.connect("bob", "both", **about)
    said = {"say": "notifications/message", "params": {"level": "emergency", "data": "of ann"}}
    form = {"message": "of ann", "requestedSchema": {"type": "object", "properties": {}}}
    later = [
        said,
        {"ask": {"q": {"method": "elicitation/create", "params": form}}},
        {"ask": {"r": {"method": "roots/list"}}},
    ]
    await ann.play("shared", {"later": later})
    going = bob.begin("tools/call", {"name": "shared:play", "arguments": {"script": [{"wait": "late"}]}})[1]
    await ann.report("shared", lambda report: "late" in report["waiting"])
    _let_it_talk(room.one, "shared")
    await ann.report("shared", lambda report: len(report["answers"]) >= 2)
    assert "of ann" not in json.dumps([bob.messages, ann.notifications]), "bob has got what is ann's"
    assert not bob.questions, "bob was asked"
    await ann.call("shared:open", gate="late")
    await going
    return "dropped, and refused"


def _let_it_talk(hub: Hub, server: str) -> None:
    """Make every process of a talking child play what it keeps."""
    for process in hub.process.children():
        if any("talking_child" in part for part in process.cmdline()):
            process.send_signal(10)
