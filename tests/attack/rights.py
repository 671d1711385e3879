"""Attacks on what somebody may use: other groups' tools, resources, prompts, and what is shown of them."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Sequence
from typing import Any

from support.harness import config, lean
from support.wire import text_of, until

from attack.rooms import Hub, Machine, Team, hub_of_its_own
from attack.table import attack
from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import write_keys

HEADING = "What somebody may use"
PATHS = [
    "/groups/red/mcp/tools/list",
    "/groups/%72ed/mcp/tools/list",
    "/groups/RED/mcp/tools/list",
    "/groups/red./mcp/tools/list",
    "/groups/red%20/mcp/tools/list",
    "/groups/red%00/mcp/tools/list",
    "/groups/red;x/mcp/tools/list",
    "/groups/blue/../red/mcp/tools/list",
    "/groups/blue/%2e%2e/red/mcp/tools/list",
    "/groups/blue%2f..%2fred/mcp/tools/list",
    "/groups/blue/mcp/../../red/mcp/tools/list",
    "/groups/blue\\..\\red/mcp/tools/list",
    "//groups/red/mcp/tools/list",
    "/groups//red/mcp/tools/list",
    "/groups/blue/groups/red/mcp/tools/list",
    "/mcp/groups/red/mcp/tools/list",
    "/groups/blue/mcp/tools/list?group=red",
    "/groups/blue/mcp/tools/list#/groups/red",
    "/mcp/../groups/red/mcp/tools/list",
    "/mcp/tools/list",
    "/groups/default/mcp/tools/list",
    "/groups/red/mcp/tools%2flist",
    "http://127.0.0.1/groups/red/mcp/tools/list",
    "/groups/\uff52ed/mcp/tools/list",
]
"""Ways to what bob may not use."""


async def _posted(hub: Hub, target: str, body: bytes, *headers: str) -> bytes:
    head = ["host: 127.0.0.1", "content-type: application/json", f"content-length: {len(body)}", "connection: close"]
    lines = [f"POST {target} HTTP/1.1", *head, f"authorization: Bearer {hub.keys['bob']}", *headers]
    return await hub.raw("\r\n".join([*lines, "", ""]).encode() + body)


@attack(
    "group-path",
    "another group's address by traversal, escapes, case, slashes, nesting",
    "404",
)
async def paths(room: Team) -> str:
    for target in PATHS:
        got = await _posted(room.one, target, b"{}")
        assert b'"name":"red:' not in got.replace(b'": "', b'":"'), f"{target}: the tools of the other group"
        assert got.split()[1] in (b"400", b"404", b"200"), f"{target}: {got[:40]!r}"
    for name in ("X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Prefix", "X-Forwarded-Path", "X-Group"):
        got = await _posted(room.one, "/groups/blue/mcp/tools/list", b"{}", f"{name}: /groups/red/mcp/tools/list")
        assert b'"name":"red:' not in got.replace(b'": "', b'":"'), f"{name}: the tools of the other group"
    return f"none of {len(PATHS) + 5} ways leads there"


@attack(
    "group-known",
    "groups that exist, and that do not",
    "one answer for both",
    finding=21,
)
async def known(room: Team) -> str:
    for who in (None, "bob"):
        seen = []
        for group in ("red", "nothing"):
            answer = await room.one.json_api(who, "tools/list", group=group)
            seen.append((answer.status_code, answer.text, sorted(answer.headers)))
        assert seen[0] == seen[1], f"{who or 'nobody'}: {seen[0][0]} and {seen[1][0]}"
    return "401 without a key, 404 with another's"


@attack(
    "group-nested",
    "`/groups/default/groups/default/…`, 200 deep",
    "no app is made, nothing grows",
    finding=6,
)
async def nested(room: Team) -> str:
    async with room.one.watched(grows_by=16):
        for who in (None, "root"):
            for depth in (1, 2, 50, 140, 200, 1000):
                path = "/groups/default" * depth + "/groups/red/mcp/tools/list"
                status = (await room.one.ask("POST", path, who, json={})).status_code
                assert status in ((404,) if who else (401, 404)), f"{depth} deep: {status}"
    return "404"


NAMES = ["red:echo", "red__echo", "red.echo", "red_echo", "RED:echo", " red:echo", "red: echo", "blue:../red:echo"]
NAMES += ["blue:red:echo", "red:echo\0", "\0red:echo", "blue:echo\nred:echo", "r\u200bed:echo", "red:\u0065cho\u200b"]
NAMES += [
    "hostile:red:echo",
    "hostile:red__echo",
    "\uff52ed:echo",
    "red\uff1aecho",
    "red%3Aecho",
    "re",
    "red:",
    ":echo",
]


@attack("group-name", "another group's tool, by every spelling, over MCP and JSON", "the error of an unknown name")
async def names(room: Team) -> str:
    client = await room.one.connect("bob", "blue", modern=False)
    for name in NAMES:
        answer = await room.one.call("bob", "blue", name)
        assert '\\"server\\": \\"red\\"' not in answer.text, f"{name!r} reached the server"
        response = await client.send("tools/call", {"name": name, "arguments": {}})
        assert '"red"' not in json.dumps(response.get("result", "")).replace("\\", ""), f"{name!r} reached the server"
    return f"none of {len(NAMES)} names reaches it"


@attack("group-hint", "names nearly those of another group", "no suggestion from it")
async def hints(room: Team) -> str:
    for name in ("rde:echo", "red:ecko", "red:eco", "redd:echo", "ed:echo", "red", "secert"):
        for method, params in (("tools/call", {"name": name}), ("prompts/get", {"name": name})):
            told = (await room.one.json_api("bob", method, params, group="blue")).json()["error"]["message"]
            assert not re.search(r"(?<![\w:])red[:_]", told.replace(name, "")), f"{name!r}: {told}"
    return "suggestions are of the caller's own group"


@attack("group-list", "lists, cursors and searches", "only the group's own")
async def lists(room: Team) -> str:
    for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
        for cursor in (None, "", "red", "0", "-1", "99999", "eyJvZmZzZXQiOjB9"):
            answer = await room.one.json_api("bob", method, {} if cursor is None else {"cursor": cursor}, group="blue")
            listed = answer.json()
            assert "//red/" not in answer.text, f"{method} with {cursor!r}"
            assert not [
                t for t in listed.get("tools", []) if t["name"].startswith("red:") and "hostile" not in t["name"]
            ]
    return "nothing of another group"


URIS = ["note://red//a", "note://red/a", "note:///a", "note://RED//a", "note://blue/../red//a", "note://blue@red//a"]
URIS += ["note://red:80//a", "note://blue/%2e%2e/red//a", "note://blue\\@red//a", "NOTE://red//a", "note://r%65d//a"]
URIS += ["note://blue//a#note://red//a", "note://blue/\0red//a", "file:///etc/passwd", "note://blue/../../red//a"]


@attack(
    "group-resource",
    "another group's resources: traversal, user parts, ports, escapes, case",
    "the error of an unknown address",
)
async def resources(room: Team) -> str:
    for uri in URIS:
        for method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
            answer = await room.one.json_api("bob", method, {"uri": uri}, group="blue")
            assert "red reads" not in answer.text, f"{uri!r} was read"
            assert "root:x" not in answer.text, f"{uri!r} was read"
    return f"none of {len(URIS)} addresses reaches it"


@attack("group-prototype", "`__proto__`, `constructor`, `{0.__class__}` as names", "names like any other")
async def prototype(room: Team) -> str:
    for name in ("__proto__", "constructor", "__class__", "toString", "{0.__class__}", "%s%n%s", "${jndi:ldap://x}"):
        for key in ("blue", name):
            answer = await room.one.call("bob", "blue", f"{key}:{name}")
            assert answer.status_code in (400, 404), f"{key}:{name}: {answer.status_code}"
        answer = await room.one.json_api("bob", "resources/read", {"uri": f"note://{name}/{name}"}, group="blue")
        assert answer.status_code in (400, 404), f"note://{name}: {answer.status_code}"
    return "unknown, like any other name"


@attack("group-skill", "another group's skills, by address and cursor; a cursor 30,000 deep", "-32602")
async def skills(room: Team) -> str:
    cursors = [b'["red",null]', b"[" * 30_000, b'{"red":null}', b'["red"]']
    asked: list[tuple[str, dict[str, Any]]] = [
        (m, {"uri": u}) for u in URIS for m in ("skills/get", "resources/directory/read")
    ]
    asked += [("skills/list", {"cursor": base64.b64encode(each).decode()}) for each in cursors]
    for method, params in asked:
        answer = await room.one.json_api("bob", method, params, group="blue")
        assert answer.status_code in (400, 404), f"{method}: {answer.status_code}"
    return "refused"


@attack("group-prompt", "another group's prompts and completions", "the error of an unknown name")
async def prompts(room: Team) -> str:
    refs: list[Any] = [{"type": "ref/prompt", "name": "red:secret"}, {"type": "ref/resource", "uri": "note://red//a"}]
    for ref in refs:
        params = {"ref": ref, "argument": {"name": "x", "value": "y"}}
        answer = await room.one.json_api("bob", "completion/complete", params, group="blue")
        assert answer.status_code in (400, 404), f"{ref['type']}: {answer.status_code}"
    answer = await room.one.json_api("bob", "prompts/get", {"name": "red:secret"}, group="blue")
    assert answer.status_code in (400, 404), f"prompts/get: {answer.status_code}"
    return "unknown"


@attack(
    "group-shown",
    "`/status`, `/groups`, dashboard, `/metrics`, `/openapi.json` with another group's key",
    "nothing of other groups",
)
async def shown(room: Team) -> str:
    for path in ("/status", "/groups", "/dashboard/state", "/dashboard/names", "/openapi.json"):
        answer = await room.one.ask("GET", path, "bob")
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        servers = answer.json() if path != "/openapi.json" else {}
        assert '"red"' not in json.dumps(servers), f"{path}: the other group's server"
    assert (await room.one.ask("GET", "/metrics", "bob")).status_code == 403, "/metrics are of all groups"
    return "only its own; `/metrics` 403"


@attack(
    "group-status",
    "`pid`, `in_flight` and totals in `/status` with a restricted key",
    "only whether a server can be used",
    finding=20,
)
async def status(room: Team) -> str:
    servers = (await room.one.ask("GET", "/status", "bob")).json()["servers"]
    for name in ("pid", "in_flight", "unanswered", "ignored_lines", "dropped_notifications", "dropped_stderr_lines"):
        assert all(name not in fields or fields[name] is None for fields in servers.values()), f"`{name}` is shown"
    return "not shown"


@attack(
    "group-bare",
    "a bare tool name while one of two servers is down",
    "nobody's",
    finding=3,
)
async def bare(room: Team) -> str:
    listed = await room.one.json_api("eve", "tools/list", group="bare")
    assert "send" not in listed.text, "it is listed as the other server's"
    for name in ("send", "evil:send"):
        answer = await room.one.call("eve", "bare", name, password="secret")
        assert answer.status_code in (400, 404, 503), f"{name}: {answer.status_code}"
        assert "secret" not in answer.text, f"{name}: the other server got the arguments"
    return "refused"


@attack(
    "group-search",
    "another group's tools by tool search",
    "only the group's own; the search counts",
    finding=10,
)
async def search(room: Team) -> str:
    listed = (await room.one.json_api("eve", "tools/list", group="search")).json()["tools"]
    found = next(tool["name"] for tool in listed if "search" in tool["name"])
    field = next(iter(listed[0]["inputSchema"]["properties"]))
    statuses = []
    for _ in range(6):
        answer = await room.one.call("few", "search", found, **{field: "many blue echo"})
        assert "blue:" not in answer.text, "tools of another group"
        statuses.append(answer.status_code)
    assert 429 in statuses, "searches are not counted"
    return "own tools; 429 beyond the limit"


@attack("group-level", "`logging/setLevel` in one group", "only its own servers are told", finding=19)
async def level(room: Team) -> str:
    await room.one.connect("ann", "both", modern=False)
    client = await room.one.connect("bob", "blue", modern=False)
    await client.send("logging/setLevel", {"level": "emergency"})
    reported = text_of((await room.one.call("ann", "both", "shared:report")).json())
    levels = [params for method, params in reported["requests"] if method == "logging/setLevel"]
    assert {"level": "emergency"} not in levels, "the server of the other group was told"
    return "only servers of its own group are told"


@attack(
    "group-revoked",
    "open streams and a session with a key that is revoked",
    "ended within 5 s",
    finding=12,
)
async def revoked(room: Team) -> str:
    path = room.one.folder.parent / "keys.json"
    before = path.read_text()
    clients = [
        await room.one.connect("eve", "blue", modern=False),
        await room.other.connect("eve", "blue", modern=False),
    ]
    old = await room.one.connect_sse("eve", "blue")
    listening = await room.one.connect("eve", "blue")
    request_id, _ = listening.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await listening.heard("notifications/subscriptions/acknowledged")
    document = json.loads(before)
    document["keys"] = [key for key in document["keys"] if key["name"] != "eve"]
    path.write_text(json.dumps(document))
    try:
        async with asyncio.timeout(15):
            for client in clients:
                await client.ended()
            await listening.ended(request_id)
            await until(lambda: old.is_ended)
        status = await room.one.status_of("POST", "/groups/blue/mcp/tools/list", "eve")
        assert status == 401, f"afterwards: {status}"
    except TimeoutError:
        raise AssertionError("a stream goes on") from None
    finally:
        path.write_text(before)
        path.chmod(0o600)
    return "4 streams ended, 401 afterwards"


@attack(
    "keys-odd",
    "a keys file missing, cut, a folder, writable by others, not JSON",
    "nobody is let in until it is mended",
)
async def keys_odd(room: Team) -> str:
    path = room.one.folder.parent / "keys.json"
    good = path.read_text()
    try:
        for odd in (
            "",
            "{",
            "[]",
            '{"keys": 1}',
            good[:-20],
            good.replace('"groups"', '"group"'),
            "\ud800".encode("utf-8", "surrogatepass"),
        ):
            path.write_bytes(odd.encode() if isinstance(odd, str) else odd)
            assert await room.one.status_of("GET", "/groups", "root") == 401, f"let in by {odd[:12]!r}"
        path.unlink()
        assert await room.one.status_of("GET", "/groups", "root") == 401, "let in without a file"
        path.write_text(good)
        path.chmod(0o666)
        assert await room.one.status_of("GET", "/groups", "root") == 401, "let in by a file that all may write"
    finally:
        path.write_text(good)
        path.chmod(0o600)
    assert await room.one.status_of("GET", "/groups", "root") == 200, "not let in once it was mended"
    return "401 while it is odd, 200 afterwards"


REFUSED: Sequence[tuple[str, str | None, str, Any]] = [
    ("/groups/red/mcp/tools/list", "bob", "POST", {}),
    ("/groups/blue/mcp/tools/call", "bob", "POST", {"name": "red:nothing"}),
    ("/groups/blue/mcp/prompts/get", "bob", "POST", {"name": "red:secret"}),
    ("/groups/blue/mcp/resources/read", "bob", "POST", {"uri": "note://red//a"}),
    ("/mcp/tools/list", None, "POST", {}),
    ("/metrics", "bob", "GET", None),
]


@attack("audit-refused", "refusals for lack of rights", "each has a line in the audit log", finding=10)
async def audit_refused(room: Team) -> str:
    for path, who, method, body in REFUSED:
        before = len(room.one.audit())
        await room.one.ask(method, path, who, json=body)
        try:
            async with asyncio.timeout(15):
                while not [e for e in room.one.audit()[before:] if e["event"] != "call" or e["outcome"] == "denied"]:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{method} {path}: no line") from None
    return f"a line for each of {len(REFUSED)}"


@attack(
    "audit-nested",
    "another group's tools, prompts and resources by way of `call_tool`",
    "refused, with a line each as if asked for directly",
    room="machine",
)
async def audit_nested(machine: Machine) -> str:
    key, entry = new_key("ann", ("mine",), None)
    write_keys(machine.project / "nested-keys.json", [entry])
    note, prompt = {"uri": "note:///a", "name": "a"}, {"name": "secret"}
    servers = config(mine=lean(), other=lean(name="other", resources=[note], prompts=[prompt]))
    groups = {"mine": {"servers": ["mine"], "tool_search": True}, "other": {"servers": ["other"]}}
    settings = f'keys_file = "{machine.project / "nested-keys.json"}"\naudit = "audit.jsonl"\n'
    settings += "prompts_as_tools = true\nresources_as_tools = true\n"
    asked: list[tuple[str, dict[str, Any]]] = [
        ("other:echo", {}),
        ("get_prompt", {"name": "other:secret"}),
        ("read_resource", {"uri": "note://other//a"}),
    ]
    async with hub_of_its_own(machine, servers, settings, keys={"ann": key}, groups=groups) as hub:
        for number, (name, arguments) in enumerate(asked, 1):
            answer = await hub.call("ann", "mine", "call_tool", name=name, arguments=arguments)
            assert answer.json()["isError"], "it was answered"
            await until(lambda number=number: len(_denied(hub)) >= number)
        await asyncio.sleep(0.3)
        assert len(_denied(hub)) == len(asked), f"{len(_denied(hub))} lines for {len(asked)}"
    return f"a line for each of {len(asked)}"


def _denied(hub: Hub) -> list[dict[str, Any]]:
    return [entry for entry in hub.audit() if entry.get("outcome") == "denied"]


@attack(
    "audit-forged",
    "line breaks, quotes and control characters in names, addresses and ids",
    "one JSON line for each entry, none forged",
    finding=14,
)
async def audit_forged(room: Team) -> str:
    forged = '\n{"event":"call","principal":"root"}\nerror: forged\r\x1b[2J'
    client = await room.one.connect("bob", "blue", modern=False)
    await client.send("tools/call", {"name": f"blue:{forged}", "arguments": {}})
    for method, params in (
        ("resources/read", {"uri": f"note://blue/{forged}"}),
        ("resources/subscribe", {"uri": f"note://blue/{forged}"}),
        ("prompts/get", {"name": f"blue:{forged}"}),
        ("logging/setLevel", {"level": forged}),
        (forged, {}),
    ):
        await client.send(method, params)
    client.notify("notifications/cancelled", {"requestId": 1, "reason": forged})
    await room.one.ask("GET", "/%0aerror:%20forged", "bob")
    await room.one.call("bob", "blue", f"blue:{forged}\u2028\x85error: forged")
    await asyncio.sleep(0.5)
    assert all(line.startswith("{") for line in (room.one.folder / "audit.jsonl").read_text().splitlines())
    assert not [
        entry
        for entry in room.one.audit()
        if entry.get("principal") == "root" and "tool" not in entry and len(entry) < 4
    ]
    assert not [line for line in room.one.log.splitlines() if line.startswith(("error: forged", '{"event"'))], (
        "a line of the log is forged"
    )
    assert "\x1b" not in room.one.log, "a control character is in the log"
    return "escaped everywhere"
