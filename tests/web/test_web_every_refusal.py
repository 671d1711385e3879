"""Every place that refuses somebody something is found in the code, and has a case here in which it does so: that
leaves one line in the audit log. Or it is no matter of rights, and that is said.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route
from support.account_hub import Around, Browser, address_in, around, asked, key_of, retried
from support.credentials import Credentials, bearer
from support.harness import PATIENCE, config, lean, talking, until
from support.keyed_hub import KeyedHub, keyed_hub
from support.memory import build_aggregator
from support.wire import EVERYTHING, Message
from support.wire_http import HttpClient

import fastmcp_aggregator
from fastmcp_aggregator.callers.call import Denied
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.front.guard import Guard
from fastmcp_aggregator.local_hub.dashboard import HubDashboard
from fastmcp_aggregator.pipe.bucket import TokenBucket

PACKAGE = Path(fastmcp_aggregator.__file__).parent
ELSEWHERE = {"children", "cli", "client_configs", "oauth", "scaffold", "service"}
"""Folders of code that is a client, or another program: what is refused there is not refused by the hub, but for what
servers ask.
"""
STATUSES = (401, 403, 404, 421)
REFUSING = {name for name in vars(Guard) if not name.startswith("_")} - {"around"}
"""What refuses within MCP, besides `Denied`: methods of the guard."""
WORDS = re.compile("|".join((*map(str, STATUSES), "Denied", "_guard", "question_refused")))
"""One of them is in each file that refuses something; the others need not be parsed."""


# What the code has.


def _functions(tree: ast.AST, path: str, inside: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Each function, by its file and its name with those of what it is in."""
    for node in ast.iter_child_nodes(tree):
        name = getattr(node, "name", None)
        is_scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        within = f"{inside}.{name}" if inside and is_scope else (str(name) if is_scope else inside)
        if is_scope and not isinstance(node, ast.ClassDef):
            yield f"{path}: {within}", node
        yield from _functions(node, path, within)


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, and not in one inside of it, nor compared."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Compare):
            yield child
            yield from _own(child)


def places() -> set[str]:
    """Every function that makes an answer with one of these statuses, or refuses within MCP; with which."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        path, text = file.relative_to(PACKAGE), file.read_text()
        is_elsewhere = path.parts[0] in ELSEWHERE
        for name, function in _functions(ast.parse(text if WORDS.search(text) else ""), str(path)):
            for node in _own(function):
                if is_elsewhere and _refuses_question(node) and not name.endswith(".question_refused"):
                    found.add(f"{name} MCP")
                elif is_elsewhere:
                    continue
                elif isinstance(node, ast.Constant) and node.value in STATUSES:
                    found.add(f"{name} {node.value}")
                elif isinstance(node, ast.Call) and _refuses(node.func):
                    found.add(f"{name} MCP")
    return found


def _refuses_question(node: ast.AST) -> bool:
    return getattr(getattr(node, "func", None), "attr", "") == "question_refused"


def _refuses(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "Denied"
    # `self._guard.refuse`, but not `self.log.record`.
    holder = getattr(getattr(function, "value", None), "attr", "")
    return isinstance(function, ast.Attribute) and function.attr in REFUSING and holder == "_guard"


NO_MATTER_OF_RIGHTS = {
    "auth/resource_metadata.py: GroupMetadata.route.serve 404": "what can be no group has none; all others have",
    "front/http/sse.py: where_mcp_is.answer 404": "nothing is there",
    "virtual_server.py: VirtualServer._make_http_app 404": "the same",
    "web/accounts.py: AccountPages._begin_for_hub 404": "an operator names a server that the hub does not log in to",
    "web/accounts.py: AccountPages._end 404": "one has no account there oneself",
    "web/accounts.py: AccountPages._revoke 404": "an operator names an account that there is not",
    "web/group_apps.py: _nothing 404": "there can be no such group, or is none; who may not use one is refused before",
    "web/operations.py: _Operations._serve_tool 404": "an operator names a tool that there is not",
    "web/operations.py: _no_server 404": "an operator names a server that there is not",
    "web/routes.py: _routes.metrics 404": "metrics are off",
    "web/dashboard/assets.py: asset_response 404": "there is no such file",
}
"""Places that answer so to nobody for lack of rights, and why."""


# Where it is refused, for real.


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The places that have refused something since, as `places` names them."""
    seen: set[str] = set()

    def note(what: object) -> None:
        frame = sys._getframe(2)
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(PACKAGE):
                name = frame.f_code.co_qualname.replace(".<locals>", "")
                seen.add(f"{path.relative_to(PACKAGE)}: {name} {what}")
            frame = frame.f_back  # type: ignore[assignment]

    response, denied = Response.__init__, Denied.__init__

    def responds(self: Response, content: Any = None, status_code: int = 200, *more: Any, **named: Any) -> None:
        note(status_code)
        response(self, content, status_code, *more, **named)

    def denies(self: Denied, *given: Any, **named: Any) -> None:
        note("MCP")
        denied(self, *given, **named)

    monkeypatch.setattr(Response, "__init__", responds)
    monkeypatch.setattr(Denied, "__init__", denies)
    monkeypatch.setattr(Child, "question_refused", _noted(Child.question_refused, note))
    for name in REFUSING:
        monkeypatch.setattr(Guard, name, _noted(getattr(Guard, name), note))
    return seen


def _noted(method: Callable[..., Any], note: Callable[[object], None]) -> Callable[..., Any]:
    def noted(*given: Any, **named: Any) -> Any:
        note("MCP")
        return method(*given, **named)

    return noted


@dataclass
class Log:
    """The audit log of the case that runs."""

    path: Path

    def lines(self) -> list[dict[str, Any]]:
        """What was refused."""
        lines = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        return [line for line in lines if line["outcome"] == "denied"]


Case = Callable[[Path], Awaitable[None]]
GROUPS = {"red": {"servers": ["a"]}, "blue": {"servers": ["b"]}, "both": {"servers": ["a", "b"]}}
NAMES: dict[str, Any] = {"red": ["red"], "both": ["both"], "all": None, "metrics": None}
TAKES = {**EVERYTHING, "extensions": {"io.modelcontextprotocol/tasks": {}}}
JSON_RPC = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@asynccontextmanager
async def hub(folder: Path, servers: Any = None, **settings: Any) -> AsyncIterator[KeyedHub]:
    credentials = Credentials(folder, NAMES, {"metrics": {"metrics"}})
    chosen = {"groups": GROUPS, "metrics": True, "tool_search": True, **settings}
    async with keyed_hub(folder, credentials, servers or config(a=talking(), b=talking()), **chosen) as place:
        yield place


def asks(path: str, who: str | dict[str, str], status: int, method: str = "POST") -> Case:
    """One HTTP request, which is answered so."""

    async def case(folder: Path) -> None:
        async with hub(folder) as place:
            assert (await place.ask(who, method, path, {})).status_code == status

    return case


def errs(method: str, *, via: str = "red", **params: Any) -> Case:
    """One request over MCP, which is refused."""

    async def case(folder: Path) -> None:
        async with hub(folder) as place:
            await (await place.connect(via, modern=True)).error(method, params)

    return case


async def key_revoked(folder: Path) -> None:
    async with hub(folder, config(a=lean(), b=lean())) as place:
        call = {"name": "a:hold", "arguments": {}}
        async with place.front.browser(**place.credentials.of("red")) as http:
            answer = asyncio.create_task(http.post("/groups/red/mcp/tools/call", json=call))
            await until(lambda: place.app.health()["a"].in_flight == 1)
            place.credentials.file.write_text("[]")
            assert (await answer).status_code == 401


async def other_s_sse(folder: Path) -> None:
    async with hub(folder) as place:
        client = await place.front.connect_sse("both", headers=place.credentials.of("both"))
        async with place.front.browser() as http:
            answer = await http.post(client.endpoint, headers=place.credentials.of("all"), json=JSON_RPC)
        assert answer.status_code == 404


async def unlisted_tool_by_search(folder: Path) -> None:
    async with hub(folder) as place:
        client = await place.connect("red")
        arguments = {"name": "b:open", "arguments": {}}
        assert (await client.result("tools/call", {"name": "call_tool", "arguments": arguments}))["isError"]


async def listens_elsewhere(folder: Path) -> None:
    async with hub(folder) as place:
        client = await place.connect("red", modern=True)
        client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["note://b//a"]}})
        await client.heard("notifications/subscriptions/acknowledged")


async def held_call(folder: Path) -> None:
    async with hub(folder) as place:
        about: dict[str, Any] = {"modern": True, "group": "both", "capabilities": {"roots": {}}}
        owner, thief = [await place.connect(name, **about) for name in ("both", "all")]
        params = {"name": "a:play", "arguments": {"script": [{"ask": {"x": {"method": "roots/list"}}}]}}
        held = await owner.result("tools/call", params)
        answers = {"inputResponses": {name: {"roots": []} for name in held["inputRequests"]}}
        await thief.error("tools/call", {**params, **answers, "requestState": held["requestState"]})


async def held_call_elsewhere(folder: Path) -> None:
    """Another replica has the call, and says whose it is not."""
    denied = {"code": -32602, "message": "it is over", "data": None, "denied": "the call belongs to another caller"}

    async def request(*_: Any) -> Message:
        return {"error": denied}

    async with hub(folder) as place:
        place.app._backend.peers.request = request  # type: ignore[method-assign]
        params = {"name": "a:play", "arguments": {}, "requestState": f"held-{'0' * 16}.x", "inputResponses": {"x": {}}}
        await (await place.connect("red", modern=True)).error("tools/call", params)


async def question_to_nobody(folder: Path) -> None:
    async with hub(folder) as place:
        one, other = [await place.connect(name, group="both") for name in ("both", "all")]
        await one.call("a:play", script=[])
        await other.call("a:play", script=[{"ask": {"x": {"method": "roots/list"}}}])


@asynccontextmanager
async def with_task(folder: Path, thief_s_group: str | None) -> AsyncIterator[tuple[HttpClient, str]]:
    """A thief, and the id of another's task."""
    servers = config(a=lean(era="modern", tool_names=["task"]), b=lean())
    async with hub(folder, servers, tool_search=False) as place:
        about = {"modern": True, "capabilities": TAKES}
        owner = await place.connect("both", **about)
        thief = await place.connect("all", group=thief_s_group, **about)
        made = await owner.result("tools/call", {"name": "a:task", "arguments": {}})
        yield thief, made["taskId"]


@pytest.mark.parametrize("group", ["both", None])
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_task_of_another_is_denied_by_a_line_that_says_so(
    tmp_path: Path, method: str, group: str | None
) -> None:
    async with with_task(tmp_path, group) as (thief, task_id):
        await thief.error(method, {"taskId": task_id, "inputResponses": {}})
        (line,) = await until(Log(tmp_path / "audit.jsonl").lines)
        assert (line["principal"], line["method"], line["reason"]) == (
            "key:all",
            method,
            "the task belongs to another caller",
        )


async def other_s_task(folder: Path) -> None:
    async with with_task(folder, None) as (thief, task_id):
        await thief.error("tasks/get", {"taskId": task_id})


async def other_s_task_on_a_stream(folder: Path) -> None:
    async with with_task(folder, "both") as (thief, task_id):
        thief.begin("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        heard = await thief.heard("notifications/subscriptions/acknowledged")
        assert "taskIds" not in heard["params"]["notifications"]


async def skills_elsewhere(folder: Path) -> None:
    async with hub(folder) as place:
        client = await place.connect("red", modern=True, capabilities={"extensions": {SKILLS: {}}})
        await client.error("skills/list", {"cursor": "WyJiIixudWxsXQ=="})


async def skill_elsewhere(folder: Path) -> None:
    async with hub(folder) as place:
        client = await place.connect("red", modern=True, capabilities={"extensions": {SKILLS: {}}})
        await client.error("skills/get", {"uri": "skill://b/x"})


SKILLS = "io.modelcontextprotocol/skills"


# Accounts of callers.


@asynccontextmanager
async def accounts(folder: Path) -> AsyncIterator[Around]:
    groups = {"g": {"name": "g", "description": "", "servers": ["crm"]}, "none": {"name": "n", "servers": []}}
    audit = str(folder / "audit.jsonl")
    async with around(folder, lists="caller", groups=groups, keys_of={"dave": ["none"]}, audit=audit) as place:
        yield place


async def login_of_no_server_of_mine(folder: Path) -> None:
    async with accounts(folder) as place, place.front.browser(**place.credentials.of("dave")) as http:
        assert (await http.post("/accounts/mine/crm")).status_code == 404


async def login_page(folder: Path, send: Callable[[Around, str], Awaitable[httpx2.Response]], status: int) -> None:
    async with accounts(folder) as place:
        address = address_in(await asked(await place.client("alice", modern=True)))
        assert (await send(place, address)).status_code == status


async def wrong_key(place: Around, address: str) -> httpx2.Response:
    return await Browser().authenticate(address, "wrong")


async def form_of_another_page(place: Around, address: str) -> httpx2.Response:
    key = key_of(place, "alice")
    return await Browser().http.post(address, data={"form": "made-up", "credential": key})


async def form_of_another_site(place: Around, address: str) -> httpx2.Response:
    fields = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}
    return await Browser().authenticate(address, key_of(place, "alice"), **fields)


async def somebody_else_s_login(place: Around, address: str) -> httpx2.Response:
    return await Browser().authenticate(address, key_of(place, "bob"))


async def wrong_browser(place: Around, address: str) -> httpx2.Response:
    sent = await Browser().authenticate(address, key_of(place, "alice"))
    return await Browser().come_back(sent.headers["location"], "bob-there")


async def no_login(place: Around, address: str) -> httpx2.Response:
    return await Browser().http.get(f"{place.front.origin}/accounts/login/made-up")


def logs_in(send: Callable[[Around, str], Awaitable[httpx2.Response]], status: int) -> Case:
    return lambda folder: login_page(folder, send, status)


async def other_s_login(folder: Path) -> None:
    async with accounts(folder) as place:
        alice, bob = [await place.client(name, modern=True) for name in ("alice", "bob")]
        result = await asked(alice)
        await bob.error("tools/call", retried(result))


async def secret_url_of_a_local_hub(folder: Path) -> None:
    app = build_aggregator(config(), audit=str(folder / "audit.jsonl"))
    ending = asyncio.Event()
    dashboard = HubDashboard(app, ending)
    async with app.serving():
        address = httpx2.URL(dashboard.open())
        try:
            async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as http:
                assert (await http.get(address.copy_with(path="/mcp"))).status_code == 404
        finally:
            ending.set()
            await dashboard.close()


HOST = {"host": "evil.example.com"}
CASES: dict[str, list[Case]] = {
    "front/http/revocation.py: Revocation.__call__ 401": [key_revoked],
    "front/http/security.py: HostGuard._pass_on 403": [
        asks("/mcp/tools/list", {"origin": "http://127.0.0.1:1"}, 403),
    ],
    "front/http/security.py: HostGuard._pass_on 421": [asks("/mcp/tools/list", {"host": "[::1].evil.example"}, 421)],
    "front/http/security.py: Membership.__call__ 403": [asks("/mcp/tools/list", "metrics", 403)],
    "front/http/security.py: Membership.__call__ 404": [
        asks("/mcp/tools/list", "red", 404),
        asks("/groups/blue/mcp", "red", 404),
        asks("/groups/none/mcp", "red", 404),
    ],
    "front/http/sse.py: _Sessions.posted 404": [other_s_sse],
    "local_hub/dashboard.py: SecretUrl.__call__ 404": [secret_url_of_a_local_hub],
    "web/accounts.py: AccountPages._begin 404": [login_of_no_server_of_mine],
    "web/accounts.py: AccountPages._login 403": [
        logs_in(wrong_key, 403),
        logs_in(form_of_another_page, 403),
        logs_in(form_of_another_site, 403),
    ],
    "web/accounts.py: AccountPages._told 403": [logs_in(wrong_browser, 403)],
    "web/accounts.py: AccountPages._told 404": [logs_in(no_login, 404)],
    "web/operations.py: forbidden 403": [
        asks("/metrics", "red", 403, "GET"),
        *(asks(f"/{path}", "red", 403) for path in ("restart/a", "stop/a", "withdraw/a", "reinstate/a", "pins/a")),
        *(asks(f"/{path}", "red", 403, "GET") for path in ("stderr/a", "keys", "pins")),
    ],
    "web/routes.py: _routes.wake 404": [asks("/wake/b", "red", 404)],
    "children/session/incoming.py: Incoming.on_request MCP": [question_to_nobody],
    "front/client_messages.py: ClientMessages._subscribe_stream MCP": [listens_elsewhere],
    "front/extension_requests.py: ExtensionRequests._ask_of_task MCP": [other_s_task],
    "front/extension_requests.py: ExtensionRequests.listened_tasks MCP": [other_s_task_on_a_stream],
    "front/extension_requests.py: ExtensionRequests._list MCP": [skills_elsewhere],
    "front/extension_requests.py: ExtensionRequests._ask_by_address MCP": [skill_elsewhere],
    "front/guard.py: Guard.refuse.fail MCP": [errs("tools/call", name="b:open", arguments={})],
    "front/pipeline.py: Pipeline._serve_locally MCP": [unlisted_tool_by_search],
    "front/pipeline.py: Pipeline._locate MCP": [errs("resources/read", uri="note://b//a")],
    "front/pipeline.py: Pipeline._route MCP": [errs("prompts/get", name="b:play")],
    "relay/account_calls.py: AccountCalls._resumed_login MCP": [other_s_login],
    "relay/pending_calls.py: PendingCalls.take MCP": [held_call],
    "relay/remote_rounds.py: result_from MCP": [held_call_elsewhere],
}
"""By the place, in what cases it refuses."""


def test_every_place_that_refuses_is_known() -> None:
    assert places() == CASES.keys() | NO_MATTER_OF_RIGHTS.keys()


@pytest.mark.parametrize("name", [f"{place} #{number}" for place in CASES for number in range(len(CASES[place]))])
async def test_each_place_that_refuses_leaves_one_line(name: str, tmp_path: Path, reached: set[str]) -> None:
    place, _, number = name.rpartition(" #")
    await CASES[place][int(number)](tmp_path)
    assert place in reached
    (line,) = await until(Log(tmp_path / "audit.jsonl").lines)
    assert line["reason"]
    assert line["id"]
    assert line["principal"]


# Whatever has an address, and what FastMCP refuses there by itself.


def addresses(app: Starlette) -> Iterator[tuple[str, str]]:
    """Each method and path that is served, groups' too."""
    for route in app.routes:
        if isinstance(route, Mount):
            continue
        assert isinstance(route, Route), route
        path = route.path.replace("{key:path}", "a").replace("{id}", "x").replace("{group_id}", "red")
        for method in route.methods or {"GET", "POST", "DELETE"}:
            yield method, path
    rest = ("/mcp", "/mcp/tools/call", "/mcp/sse", "/mcp/messages")
    for path in (*(f"red{each}" for each in rest), "", "/mcp", "red", ".x", "a%20b/mcp", "%00/mcp", "x" * 300 + "/mcp"):
        for method in ("GET", "POST", "DELETE"):
            yield method, f"/groups/{path}"


OPEN = {"/", "/health", "/ready", "/accounts/callback/x"}
"""What everybody may ask for."""


@pytest.mark.parametrize("who", ["nobody", "a wrong key", "a wrong token", "red"])
async def test_whatever_is_refused_at_any_address_leaves_one_line(
    who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plenty(**_: float) -> TokenBucket:
        return TokenBucket(burst=10_000, rate=10_000)

    monkeypatch.setattr("fastmcp_aggregator.policies.audit.TokenBucket", plenty)
    log = Log(tmp_path / "audit.jsonl")
    async with accounts(tmp_path) as place, place.front.browser() as http:
        credentials = {
            "nobody": {},
            "a wrong key": {"x-api-key": "fma_0_0"},
            "a wrong token": bearer(aud="another"),
            "red": place.credentials.of("dave"),
        }[who]
        refused: list[str] = []
        for method, path in addresses(place.front.asgi):
            async with http.stream(method, path, headers=credentials, json=None if method == "GET" else {}) as answer:
                if answer.status_code in (401, 403, 421):
                    refused.append(unquote(path))
                else:
                    is_open = path in OPEN or path.startswith("/.well-known/")
                    is_open |= answer.status_code in (404, 405) and not path.startswith("/groups/")
                    assert who == "red" or is_open, (method, path)
        assert len(refused) > (10 if who == "red" else 40)

        def recorded() -> list[str]:
            return [line["path"] for line in log.lines() if line["path"] in refused]

        await until(lambda: len(recorded()) >= len(refused))
        assert recorded() == refused
