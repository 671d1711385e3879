"""Attacks on what operators alone may do and see, by those who may call, observe or read metrics."""

from __future__ import annotations

import asyncio
import json

from support.wire import until, until_answered

from attack.rooms import Hub, Team, jwt_for
from attack.table import attack

HEADING = "What operators may do and see"
ACTS = [
    ("POST", "/restart/red"),
    ("POST", "/stop/red"),
    ("GET", "/stderr/red"),
    ("POST", "/withdraw/red"),
    ("POST", "/reinstate/red"),
    ("GET", "/keys"),
    ("GET", "/pins"),
    ("POST", "/pins/red"),
]
WAYS = ("{}", "{}/", "/.{}", "/groups/red{}", "/mcp{}", "/x/..{}", "/%2e{}")
OTHERS = ("ann", "bob", "watch", "meter")
SPELLINGS = ("red:pid", "red__pid", "red.pid", "red_pid", "pid", "RED:pid", "red:pid ", "red: pid", "red:%70id")
PLANTED = "planted-in-a-call"


@attack(
    "operate-acts",
    "operators' acts with other roles, methods, slashes, escapes and groups' addresses",
    "403 or 404, no server touched",
)
async def acts(room: Team) -> str:
    before = await _pid(room.one, "red")
    count = 0
    for who in OTHERS:
        for method, path in ACTS:
            for way in WAYS:
                target = way.format(path)
                answer = await room.one.ask(method, target, who, json={"tool": "echo", "offer": "x"})
                assert answer.status_code in (307, 403, 404, 405), f"{who}, {target}: {answer.status_code}"
                count += 1
            for other in ("GET", "HEAD", "PUT", "DELETE"):
                headers = {"X-HTTP-Method-Override": method}
                answer = await room.one.ask(other, path, who, headers=headers)
                assert answer.status_code in (403, 405), f"{who}, {other} {path}: {answer.status_code}"
                count += 1
    assert await _pid(room.one, "red") == before, "the server is another process"
    return f"refused in {count} ways"


async def _pid(hub: Hub, key: str) -> int:
    return int((await hub.ask("GET", "/status", "root")).json()["servers"][key]["pid"])


@attack(
    "operate-claims",
    "claims that only look like a role: case, commas, nesting, wildcards",
    "the role `call` alone",
)
async def claims(room: Team) -> str:
    odd = [
        "Operate",
        "call,operate",
        ["operate "],
        [["operate"]],
        {"operate": True},
        "operate\0",
        "\u043eperate",
        True,
        "*",
    ]
    for value in odd:
        token = jwt_for("mallory", "red", roles=value)
        for path in ("/keys", "/pins", "/stderr/red", "/metrics"):
            answer = await room.one.ask("GET", path, token)
            assert answer.status_code == 403, f"{value!r} at {path}: {answer.status_code}"
    return f"403 for each of {len(odd)} claims"


@attack("operate-calls", "calls with keys that only observe, read metrics or operate", "403")
async def calls(room: Team) -> str:
    for who in ("watch", "meter", "chief"):
        for base in ("/mcp", "/groups/red/mcp", "/groups/default/mcp"):
            for path in ("", "/tools/call", "/tools/list", "/messages?session_id=x"):
                answer = await room.one.ask("POST", base + path, who, json={"name": "red:echo"})
                assert answer.status_code == 403, f"{who}, {base}{path}: {answer.status_code}"
    return "403 for 3 roles"


@attack(
    "operate-wake",
    "waking others' servers, or a stopped one",
    "404 and a line in the audit log; it stays stopped",
)
async def wake(room: Team) -> str:
    for who in ("bob", "watch", "meter"):
        assert (await room.one.ask("POST", "/wake/red", who)).status_code == 404

    def lines() -> int:
        return sum(line.get("path") == "/wake/red" and line["outcome"] == "denied" for line in room.one.audit())

    await until(lambda: lines() >= 3)
    assert (await room.one.ask("POST", "/stop/red", "chief")).status_code == 202
    try:
        for _ in range(5):
            await room.one.ask("POST", "/wake/red", "ann")
            assert (await room.one.call("ann", "red", "red:echo")).status_code != 200, "it serves again"
    finally:
        await room.one.ask("POST", "/restart/red", "chief")
    await until_answered(lambda: room.one.call("ann", "red", "red:echo"), lambda answer: answer.status_code == 200)
    return "404; it stays stopped"


@attack(
    "operate-withdrawn",
    "a withdrawn tool, by every spelling, group and search",
    "neither called nor listed",
)
async def withdrawn(room: Team) -> str:
    assert (await room.one.ask("POST", "/withdraw/red", "chief", json={"tool": "pid"})).status_code == 200
    try:
        for group in ("red", "pair", "search"):
            for name in SPELLINGS:
                answer = await room.one.call("root", group, name)
                assert answer.status_code != 200, f"{name!r} in {group}"
        found = await room.one.call("root", "search", "search_tools", query="pid")
        assert "red:pid" not in found.text, "it is found"
        called = await room.one.call("root", "search", "call_tool", name="red:pid", arguments={})
        assert called.status_code != 200 or called.json().get("isError"), "it is called by way of the search"
    finally:
        await room.one.ask("POST", "/reinstate/red", "chief", json={"tool": "pid"})
    return "not called in 29 ways"


@attack(
    "operate-shown",
    "others' calls, their arguments and reasons, on page, status and metrics",
    "callers see their own calls; nobody sees contents",
)
async def shown(room: Team) -> str:
    await room.one.call("ann", "red", "red:echo", text=PLANTED)
    await room.one.call("ann", "red", f"red:{PLANTED}")
    await room.one.json_api("ann", "resources/read", {"uri": f"note://red/{PLANTED}"}, group="red")
    for who in ("bob", "meter", jwt_for("ann", "red"), jwt_for("key:ann", "red")):
        view = (await room.one.ask("GET", "/dashboard/state", who)).json()
        assert not [call for call in view["calls"] if call["principal"] == "key:ann"], f"{who[:9]} sees the call"
        assert (await room.one.ask("GET", "/dashboard/history", who)).json() == {}
    for who in ("watch", "chief"):
        for path in ("/dashboard/state", "/dashboard/history", "/dashboard/names", "/status", "/metrics"):
            assert PLANTED not in (await room.one.ask("GET", path, who)).text, f"{path} shows what was in a call"
    return "own calls alone, and nothing of what was in them"


@attack("operate-page", "one viewer waits 250 times for news of the page", "others can wait for news, too")
async def page(room: Team) -> str:
    async def wait(who: str) -> asyncio.Task[object]:
        etag = (await room.one.ask("GET", "/dashboard/state", who)).headers["etag"]
        headers = {"If-None-Match": etag, "Prefer": "wait=20"}
        return asyncio.create_task(room.one.ask("GET", "/dashboard/state", who, headers=headers))

    waiting = [await wait("meter") for _ in range(250)]
    try:
        his = await wait("few")
        waiting.append(his)
        await asyncio.sleep(0.3)
        assert not his.done(), "the other's is answered at once"
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return "others wait for news"


@attack(
    "operate-odd",
    "odd bodies and names at operators' acts",
    "400, 404 or 409, nothing done",
)
async def odd(room: Team) -> str:
    texts = ("", "[]", '{"tool":null}', '{"tool":[]}', '{"tool":"\\ud800"}', "[" * 50_000, f'{{"tool":"{"x" * 2000}"}}')
    bodies = [text.encode() for text in texts]
    for body in bodies:
        for path in ("/withdraw/red", "/pins/red"):
            headers = {"Content-Type": "application/json"}
            answer = await room.one.ask("POST", path, "chief", content=body, headers=headers)
            assert answer.status_code in (400, 404, 409), f"{body[:20]!r} at {path}: {answer.status_code}"
    for key in ("none", "", "red%00", "red/", "../red", "red%2f", "x" * 5000):
        for act in ("restart", "stop", "wake"):
            answer = await room.one.ask("POST", f"/{act}/{key}", "chief")
            assert answer.status_code in (404, 405, 414), f"{act} {key[:9]!r}: {answer.status_code}"
    assert "withdrawn" not in json.dumps((await room.one.ask("GET", "/status", "root")).json())
    return f"refused for {len(bodies) * 2 + 21} requests"
