"""The dashboard over HTTP: who gets what, what is live, and what never leaves the hub."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp.server.auth import StaticTokenVerifier
from starlette.applications import Starlette
from starlette.routing import Mount
from support import doubles
from support.account_hub import around
from support.harness import PATIENCE, config, lean, until
from support.memory import build_aggregator
from support.serving import browser, served
from support.wire import ELSEWHERE

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.access.roles import ROLES
from fastmcp_aggregator.auth.claims import claim_of
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.policies.policy import CallEnd
from fastmcp_aggregator.policies.recent import RecentCalls
from fastmcp_aggregator.web.dashboard import watch

GROUPS = {
    "web": {"name": "Web", "servers": ["fetch"], "tools": ["pid", "fail"]},
    "both": {"servers": ["fetch", "files"]},
}
FILES = ["index.html", "style.css", "theme.js", "app.js", "tools.js", "icon.svg"]
WAIT = {"prefer": "wait=3600"}
LESS_THAN_THEY_WAIT = watch.WAIT_BOUND - 5


def hub(*principals: str, **options: Any) -> Aggregator:
    """A hub of two servers; each principal `name` may use all groups and do everything, `name:group` use that group."""
    if principals:
        options["auth"] = StaticTokenVerifier(dict(map(_token, principals)))
    document = config(fetch=lean(), files=lean(era="modern", resources=[{"uri": "note://one", "name": "one"}]))
    return build_aggregator(document, groups=GROUPS, **options)


def _token(principal: str) -> tuple[str, dict[str, Any]]:
    name, _, group = principal.partition(":")
    claim = claim_of(name, [group]) if group else claim_of(name, None, ROLES)
    return name, {"client_id": name, "scopes": [], **claim}


@asynccontextmanager
async def unstarted(app: Aggregator) -> AsyncIterator[httpx2.AsyncClient]:
    """A plain HTTP client of an app whose servers are not started: for what does not depend on them."""
    transport = httpx2.ASGITransport(app.http_app())
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield http


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


async def ready(http: httpx2.AsyncClient, **headers: str) -> None:
    """Wait until all servers run."""
    async with asyncio.timeout(PATIENCE):
        while (await http.get("/ready", headers=headers)).status_code != 200:
            await asyncio.sleep(0.01)


async def state(http: httpx2.AsyncClient, headers: Mapping[str, str] | None = None) -> Any:
    answer = await http.get("/dashboard/state", headers=headers or {})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def call(http: httpx2.AsyncClient, name: str, /, *, by: str | None = None, **arguments: Any) -> httpx2.Response:
    path = "/groups/web/mcp" if by == "guest" else "/mcp"
    body = {"name": name, "arguments": arguments}
    answer = await http.post(f"{path}/tools/call", json=body, headers=bearer(by) if by else {})
    assert answer.status_code != 401
    return answer


# The page itself.


async def test_the_page_and_what_it_loads_are_served_with_strict_headers() -> None:
    async with unstarted(hub()) as http:
        page = await http.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert b'data-auth="none"' in page.content
        for answer in (page, *[await http.get(f"/dashboard/{name}") for name in FILES]):
            assert answer.status_code == 200, answer.url
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self';")
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-cache"


async def test_a_browser_that_has_a_file_is_not_sent_it_again() -> None:
    async with unstarted(hub()) as http:
        etag = (await http.get("/dashboard/app.js")).headers["etag"]
        again = await http.get("/dashboard/app.js", headers={"if-none-match": f'"other", W/{etag}'})
        assert (again.status_code, again.content) == (304, b"")


async def test_nothing_but_the_files_of_the_page_is_served() -> None:
    async with unstarted(hub()) as http:
        for name in ("none.js", "..%2froutes.py", "..%2f..%2fsettings.py", "__init__.py", "", "%00"):
            assert (await http.get(f"/dashboard/{name}")).status_code == 404, name


async def test_the_page_needs_nothing_from_elsewhere_and_has_no_script_or_style_in_it() -> None:
    async with unstarted(hub()) as http:
        for path in ("/", *(f"/dashboard/{name}" for name in FILES)):
            text = (await http.get(path)).text.replace("http://www.w3.org/2000/svg", "")
            assert "http://" not in text, path
            assert "https://" not in text, path
        page = (await http.get("/")).text
        assert "<style" not in page
        assert " style=" not in page
        assert not re.search(r"<[^>]*\son\w+=", page)


async def test_it_can_be_switched_off() -> None:
    async with unstarted(hub(dashboard=False)) as http:
        for path in ("/", "/dashboard/app.js", "/dashboard/state"):
            assert (await http.get(path)).status_code == 404


async def test_an_mcp_endpoint_at_the_root_stays_there() -> None:
    async with browser(hub().http_app("/")) as http:
        assert "<html" not in (await http.get("/")).text
        assert (await http.get("/dashboard/app.js")).status_code != 200


async def test_it_works_under_another_path() -> None:
    inner = hub().http_app()
    outer = Starlette(routes=[Mount("/team/hub", app=inner)], lifespan=lambda _: inner.router.lifespan_context(inner))
    async with browser(outer, "/team/hub") as http:
        assert (await http.get("/")).status_code == 200
        assert (await http.get("/dashboard/app.js")).status_code == 200
        for group in (await state(http))["groups"]:
            listed = await http.post(f"/{group['endpoint']}/tools/list")
            assert (listed.status_code, bool(listed.json()["tools"])) == (200, True)


async def test_other_sites_are_not_told_anything() -> None:
    async with unstarted(hub()) as http:
        for header in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            assert (await http.get("/dashboard/state", headers=header)).status_code in (403, 421)


# Its data.


async def test_it_tells_how_the_servers_are_what_the_groups_have_and_what_was_called() -> None:
    async with browser(hub()) as http:
        await ready(http)
        assert (await call(http, "fetch:echo", text="a secret")).status_code == 200
        await call(http, "files:fail")
        await call(http, "files:error", code=-31999, message="a secret, too")
        view = await state(http)
    fetch, files = view["servers"]
    assert [(s["key"], s["state"], s["era"], s["restarts"], s["last_error"]) for s in (fetch, files)] == [
        ("fetch", "running", "legacy", 0, None),
        ("files", "running", "modern", 0, None),
    ]
    assert (files["resources"], fetch["tools"] > 10, fetch["in_flight"]) == (1, True, 0)
    assert {g["id"]: ([s["key"] for s in g["servers"]], g["endpoint"]) for g in view["groups"]} == {
        "default": (["fetch", "files"], "mcp"),
        "web": (["fetch"], "groups/web/mcp"),
        "both": (["fetch", "files"], "groups/both/mcp"),
    }
    assert [(c["server"], c["name"], c["outcome"], c["code"]) for c in view["calls"]] == [
        ("files", "error", "error", -31999),
        ("files", "fail", "tool_error", None),
        ("fetch", "echo", "ok", None),
    ]
    assert all(0 < c["seconds"] < PATIENCE and c["ended"] <= view["now"] for c in view["calls"])
    assert view["viewer"] == {"name": None, "sees_all": True, "roles": sorted(ROLES)}
    assert "secret" not in json.dumps(view)


async def test_the_uri_that_was_read_is_not_told() -> None:
    async with browser(hub()) as http:
        await ready(http)
        await http.post("/mcp/resources/read", json={"uri": "note://files/one?token=secret"})
        (read,) = (await state(http))["calls"]
        assert (read["method"], read["name"]) == ("resources/read", "note://…")


async def test_the_names_of_the_tools_are_those_of_the_json_api() -> None:
    async with browser(hub(separator="__")) as http:
        await ready(http)
        names = (await http.get("/dashboard/names")).json()
        assert names["web"] == {"fetch": ["fetch__fail", "fetch__pid"]}
        listed = (await http.post("/groups/web/mcp/tools/list")).json()["tools"]
        assert [tool["name"] for tool in listed] == names["web"]["fetch"]


async def test_the_calls_that_are_kept_are_bounded() -> None:
    app = hub()
    async with browser(app) as http:
        await ready(http)
        await asyncio.gather(*(call(http, "fetch:echo") for _ in range(120)))
        calls = (await state(http))["calls"]
        assert len({c["id"] for c in calls}) == len(calls) == 100


# Who sees what.


async def test_data_needs_credentials_and_the_empty_page_does_not() -> None:
    async with unstarted(hub("boss")) as http:
        for path in ("/dashboard/state", "/dashboard/names"):
            assert (await http.get(path)).status_code == 401
            assert (await http.get(path, headers=bearer("other"))).status_code == 401
            assert (await http.get(path, headers={"cookie": "key=boss"})).status_code == 401
            assert (await http.get(f"{path}?key=boss&access_token=boss")).status_code == 401
            assert (await http.get(path, headers=bearer("boss"))).status_code == 200
        page = await http.get("/")
        assert (page.status_code, b'data-auth="key"' in page.content) == (200, True)


async def test_who_has_a_group_sees_nothing_outside_of_it() -> None:
    async with browser(hub("boss", "guest:web")) as http:
        await ready(http)
        await call(http, "files:echo", by="boss")
        await call(http, "fetch:pid", by="boss")
        await call(http, "fetch:pid", by="guest")
        view = await state(http, bearer("guest"))
        names = (await http.get("/dashboard/names", headers=bearer("guest"))).json()
        everything = await state(http, bearer("boss"))
    assert view["viewer"] == {"name": "guest", "sees_all": False, "roles": ["call"]}
    assert [group["id"] for group in view["groups"]] == ["web"]
    (server,) = view["servers"]
    assert (server["key"], server["tools"]) == ("fetch", 2)
    assert not {"pid", "in_flight", "waiting", "isolation_reason"} & server.keys()
    assert server["isolation"] == "shared"
    assert [(c["principal"], c["name"]) for c in view["calls"]] == [("guest", "pid")]
    assert names == {"web": {"fetch": ["fetch:fail", "fetch:pid"]}}
    told = json.dumps([view, names])
    assert not [word for word in ("files", "both", "default", "boss", "echo") if word in told]
    assert [c["principal"] for c in everything["calls"]] == ["guest", "boss", "boss"]


async def test_what_others_do_is_nothing_new_to_who_does_not_see_it() -> None:
    async with browser(hub("boss", "guest:web")) as http:
        await ready(http)
        before = await http.get("/dashboard/state", headers=bearer("guest"))
        await call(http, "files:echo", by="boss")
        unchanged = {**bearer("guest"), "if-none-match": before.headers["etag"]}
        assert (await http.get("/dashboard/state", headers=unchanged)).status_code == 304


async def test_errors_are_told_in_full_on_this_machine_alone() -> None:
    broken = {"command": "/opt/private/program"}
    app = build_aggregator(config(a=lean(), broken=broken), strict=False)
    async with browser(app) as http:
        await until(lambda: app.health() and app.health()["broken"].last_error)
        assert "/opt/private" in str(app.health()["broken"].last_error)
        assert "/opt/private" in (await state(http))["servers"][1]["last_error"]
        http.headers.update(ELSEWHERE)
        view = await state(http)
        assert view["servers"][1]["last_error"]
        assert "private" not in json.dumps(view)


# Live.


def waiting(http: httpx2.AsyncClient, etag: str) -> asyncio.Task[httpx2.Response]:
    return asyncio.create_task(http.get("/dashboard/state", headers={**WAIT, "if-none-match": etag}))


async def test_a_request_waits_until_a_server_dies_and_until_it_is_back() -> None:
    app = hub(strict=False)
    async with browser(app) as http:
        await ready(http)
        before = await http.get("/dashboard/state")
        changed = waiting(http, before.headers["etag"])
        await call(http, "files:leave")
        async with asyncio.timeout(PATIENCE):
            seen = await changed
            while seen.json()["servers"][1]["restarts"] == 0 or seen.json()["servers"][1]["state"] != "running":
                seen = await waiting(http, seen.headers["etag"])
        assert seen.json()["servers"][1]["last_error"] == "it exited with code 1 (stderr: leaving)"


async def test_a_request_waits_until_a_tool_is_taken_out_of_service(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    look = watch.Watch._current
    monkeypatch.setattr(watch.Watch, "_current", lambda self: looks.append(self) or look(self))
    app = hub()
    async with browser(app) as http:
        await ready(http)
        changed = waiting(http, (await http.get("/dashboard/state")).headers["etag"])
        await until(lambda: len(looks) > 2)
        assert (await http.post("/withdraw/files", json={"tool": "echo"})).status_code == 200
        seen = await asyncio.wait_for(changed, PATIENCE)
        assert seen.status_code == 200
        (files,) = [server for server in seen.json()["servers"] if server["key"] == "files"]
        assert files["withdrawn"] == ["echo"]


async def test_a_request_that_finds_nothing_new_ends_with_304() -> None:
    async with browser(hub()) as http:
        await ready(http)
        etag = (await http.get("/dashboard/state")).headers["etag"]
        answer = await http.get("/dashboard/state", headers={"if-none-match": etag, "prefer": "wait=1"})
        assert (answer.status_code, answer.headers["cache-control"]) == (304, "no-store")


async def test_those_who_wait_take_no_place_and_do_not_hold_up_the_end() -> None:
    app = hub(max_concurrent_requests=1, max_waiting_requests=0)
    async with served(app) as front, front.browser() as http:
        await ready(http)
        etag = (await http.get("/dashboard/state")).headers["etag"]
        waits = [waiting(http, etag) for _ in range(5)]
        assert (await http.post("/mcp/tools/list")).status_code == 200
        front.stop.set()
        ended = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), LESS_THAN_THEY_WAIT)
        assert all(isinstance(one, Exception) or one.status_code in (200, 304, 503) for one in ended)


async def test_no_more_than_so_many_wait() -> None:
    async with browser(hub()) as http:
        await ready(http)
        etag = (await http.get("/dashboard/state")).headers["etag"]
        waits = {waiting(http, etag) for _ in range(watch.WAITING_LIMIT + 1)}
        done, others = await asyncio.wait(waits, timeout=LESS_THAN_THEY_WAIT, return_when="FIRST_COMPLETED")
        assert [one.result().status_code for one in done] == [304]
        assert len(others) == watch.WAITING_LIMIT
        for one in others:
            one.cancel()
        await asyncio.wait(others)


async def test_a_new_config_is_shown() -> None:
    app = hub(strict=False)
    async with browser(app) as http:
        await ready(http)
        before = await http.get("/dashboard/state")
        changed = waiting(http, before.headers["etag"])
        await app.reload(config(fetch=lean(), files=lean(era="modern"), third=lean()))
        keys = [server["key"] for server in (await changed).json()["servers"]]
        assert keys == ["fetch", "files", "third"]


async def test_a_file_that_is_refused_is_shown_to_observers_until_it_is_in_use(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(right := json.dumps(config(fetch=lean(), files=lean())))
    tokens = StaticTokenVerifier(dict(map(_token, ("root", "guest:web"))))
    app = build_aggregator(file, groups=GROUPS, auth=tokens)
    async with browser(app, authorization="Bearer root") as http:
        await ready(http)
        before = await http.get("/dashboard/state")
        assert before.json()["refused_files"] == {}
        changed = waiting(http, before.headers["etag"])
        file.write_text("{")
        with pytest.raises(ConfigError):
            await app.reload()
        seen = await changed
        assert seen.json()["refused_files"].keys() == {"config"}
        assert (await http.get("/dashboard/state")).headers["etag"] == seen.headers["etag"]  # though it is older now
        assert "refused_files" not in await state(http, bearer("guest"))
        changed = waiting(http, seen.headers["etag"])
        file.write_text(right)
        await app.reload()
        assert (await changed).json()["refused_files"] == {}


def test_the_calls_that_are_kept_are_the_last_ones() -> None:
    recent = RecentCalls(kept=3)
    for number in range(5):
        call = doubles.call(Principal("ann"), "web", "tools/call", "git", f"tool_{number}", {})
        recent.after(call, CallEnd("ok", 0.0))
    assert recent.count == 5
    assert [call.name for call in recent.latest(2, lambda _: True)] == ["tool_4", "tool_3"]
    assert [call.name for call in recent.latest(9, lambda call: call.name != "tool_3")] == ["tool_4", "tool_2"]


@pytest.mark.parametrize(
    ("method", "ref", "name", "shown"),
    [
        ("tools/call", None, "x" * 300, "x" * 256),
        ("prompts/get", None, "review", "review"),
        ("completion/complete", {"name": "review"}, "review", "review"),
        ("completion/complete", {"uri": "note://{who}"}, "note://{who}", "note://…"),
        ("resources/read", None, "file:///home/ann/secret", "file://…"),
        ("resources/read", None, "mailto:ann@example.org", "…"),
    ],
)
def test_only_names_of_tools_and_prompts_are_kept_whole(method: str, ref: Any, name: str, shown: str) -> None:
    recent = RecentCalls()
    recent.after(doubles.call(Principal(), "default", method, "a", name, ref=ref), CallEnd("ok", 0.0))
    assert [call.name for call in recent.latest(1, lambda _: True)] == [shown]


async def test_a_group_that_is_gone_is_not_shown_any_more() -> None:
    groups: dict[str, Any] = {"web": {"servers": ["fetch"]}}
    app = build_aggregator(config(fetch=lean()), groups=groups)
    async with browser(app) as http:
        await ready(http)
        assert [g["id"] for g in (await state(http))["groups"]] == ["default", "web"]
        groups.clear()
        await app.reload()
        assert [g["id"] for g in (await state(http))["groups"]] == ["default"]


async def test_the_way_to_log_in_to_a_server_is_counted_as_none_of_its_tools(tmp_path: Path) -> None:
    async with around(tmp_path, lists="caller") as place, place.front.browser() as http:
        headers = place.credentials.of("bob")
        view = (await http.get("/dashboard/state", headers=headers)).json()
        assert [(server["tools"], server["for_each_caller"]) for server in view["servers"]] == [(0, True)]
        parts = [part for group in view["groups"] for part in group["servers"]]
        assert [(part["tools"], part["for_each_caller"]) for part in parts] == [(0, True)] * len(parts)
        names = (await http.get("/dashboard/names", headers=headers)).json()
        assert names["default"] == {"crm": []}
        assert place.app.health()["crm"].tools == 0
