"""The dashboard in a real browser: what people see and do. Skipped where there is no Chromium."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from demo_hub import GROUPS, servers, text, tool
from fastmcp.server.auth import StaticTokenVerifier
from starlette.applications import Starlette
from starlette.routing import Mount
from support import memory
from support.harness import PATIENCE, config, lean, timed
from test_dashboard_http import _token

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.pinning.pins_file import read_pins, write_pins

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, Route, expect
from support.chromium import CHROMIUM, launched, served

expect.set_options(timeout=PATIENCE * 1000)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; on Debian: apt-get install chromium"),
    pytest.mark.browser,
]

VIEWS = ["servers", "groups", "tools", "tools/coding/git%3Agit_log", "calls"]
MARKUP = '<img src="x" onerror="alert(1)"><script>alert(1)</script>'
HELD_BACK = """end => {
    const { fetch } = window;
    window.fetch = async (...request) => {
        if (String(request[0]).endsWith(end)) await new Promise(go => { window.go = go; });
        return await fetch(...request);
    };
}"""
ENTERED = """text => {
    const input = document.getElementById("tools-filter");
    input.value = text;
    input.dispatchEvent(new Event("input"));
    document.getElementById("tools-list").getBoundingClientRect();
}"""
COPIED = "begin => navigator.clipboard.readText().then(text => text.startsWith(begin))"
CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server `search` does not start while there is this file."""
    return tmp_path_factory.mktemp("hub") / "broken"


@pytest.fixture(scope="module")
def hub(chromium: Browser, broken: Path) -> Iterator[str]:
    """The demo hub, without authentication; its address."""
    app = build_aggregator(config(**servers(broken)), groups=GROUPS, strict=False, list_grace=0, name="Team hub")
    # Several tests end one server: after that it is to be started like any other.
    with served(timed(app, Timings(crash_loop=1000)).http_app()) as origin:
        yield f"{origin}/"


@pytest.fixture(scope="module")
def closed_hub(chromium: Browser) -> Iterator[str]:
    """A hub with authentication, under a path of another app; its address. One of its servers is hostile."""
    auth = StaticTokenVerifier(dict(map(_token, ["boss", "guest:web"])))
    tools = [tool(MARKUP, MARKUP, query=text(MARKUP)), tool("\u202eredro", "a\u200bb \u2066c", query=text("\u202d"))]
    hostile = lean(results={"tools/list": {"tools": tools}})
    groups = {"web": {"servers": ["fetch"], "tools": ["echo"]}}
    app = build_aggregator(config(fetch=lean(), hostile=hostile), groups=groups, auth=auth).http_app()
    outer = Starlette(routes=[Mount("/team/hub", app=app)], lifespan=lambda _: app.router.lifespan_context(app))
    with served(outer) as origin:
        yield f"{origin}/team/hub/"


@contextmanager
def page_of(browser: Browser, address: str, *, tolerates: str | None = None, **options: Any) -> Iterator[Page]:
    """A page in a profile of its own. In the end nothing may have been logged, or asked for from elsewhere."""
    origin = "/".join(address.split("/", 3)[:3])
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith((origin, "data:")) else problems.append(r.url))
    try:
        page.goto(address)
        yield page
        assert [problem for problem in problems if tolerates is None or tolerates not in problem] == []
    finally:
        context.close()


def processor_seconds(page: Page) -> float:
    """What the page has had of the processor."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return float(metrics["ThreadTime"])


def row(page: Page, server: str) -> Any:
    return page.locator("#servers-table tbody tr").filter(has=page.get_by_role("rowheader", name=server))


def process_of(page: Page, server: str) -> int:
    cell = page.locator(f"#servers-table tr[data-item={server}] [data-column=Process]")
    return int(cell.text_content() or "")


def opened(page: Page, view: str) -> None:
    """Open a part of the page, and wait until it is filled."""
    page.evaluate("view => { location.hash = view; }", view)
    filled = {"servers": "#servers-table tbody tr", "groups": "#groups-list .tools a", "calls": "#view-calls h2"}
    name = unquote(view.rpartition("/")[2])
    selector = f"form.call[aria-label='Call {name}']" if view.count("/") == 2 else filled.get(view, "#tools-list a")
    page.locator(selector).first.wait_for()


def test_it_shows_servers_groups_tools_and_calls(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        expect(page).to_have_title("(1 failed) Team hub")
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page.locator("#servers-summary")).to_have_text("3 of 4 servers running")
        for words in ("running", "modern", "4 tools, 1 resource, 1 prompt"):
            expect(row(page, "git")).to_contain_text(words)
        for words in ("failed", "next try", "command not found: 'mail-mcp-server-that-is-not-installed'"):
            expect(row(page, "mail")).to_contain_text(words)
        page.get_by_role("link", name="Groups").click()
        coding = page.locator("article").filter(has_text="Repositories and searches")
        expect(coding).to_contain_text(f"{hub}groups/coding/mcp")
        expect(coding.locator(".tools a")).to_have_text(["git_status", "git_log", "git_commit", "git_reset", "search"])
        coding.get_by_role("link", name="git_log").click()
        expect(page.get_by_role("heading", name="git:git_log")).to_be_focused()
        page.get_by_text("Input schema").click()
        expect(page.locator("details.schema pre")).to_contain_text('"max_count"')


def test_a_server_that_dies_and_comes_back_is_seen_without_reloading(chromium: Browser, hub: str, broken: Path) -> None:
    with page_of(chromium, hub) as page:
        expect(row(page, "search")).to_contain_text("running")
        page.evaluate("window.untouched = true")
        pid = process_of(page, "search")
        broken.touch()
        os.kill(pid, signal.SIGKILL)
        expect(row(page, "search")).to_contain_text("failed")
        expect(row(page, "search")).to_contain_text("it exited with code 9")
        broken.unlink()
        page.request.post(f"{hub}mcp/tools/call", data={"name": "search:search", "arguments": {"query": "wake up"}})
        expect(row(page, "search")).to_contain_text("running")
        expect(row(page, "search")).not_to_contain_text(str(pid))
        expect(page.locator("#announcer")).to_contain_text("search is running")
        assert page.evaluate("window.untouched") is True


def test_a_server_that_sleeps_is_started_by_its_button(chromium: Browser) -> None:
    document = config(**{"a": lean(), "<b>": lean()})
    settings: dict[str, Any] = {"catalogue": "on", "strict": False, "start": "on_demand"}
    learning = build_aggregator(document, **settings)
    with served(learning.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        expect(page.locator("#servers-summary")).to_have_text("2 of 2 servers running")
    assert learning._backend._catalogues.flush(PATIENCE)
    app = build_aggregator(document, **settings)
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        for server in ("a", "<b>"):
            expect(row(page, server)).to_contain_text("sleeping")
        page.get_by_role("button", name="Start <b>").click()
        expect(row(page, "<b>")).to_contain_text("running")
        expect(row(page, "a")).to_contain_text("sleeping")
        expect(page.get_by_role("button", name="Start <b>")).to_be_hidden()
        button = page.get_by_role("button", name="Start a")
        button.focus()
        page.keyboard.press("Enter")
        expect(row(page, "a")).to_contain_text("running")
        expect(page.locator("#servers-summary")).to_have_text("2 of 2 servers running")


def test_a_tool_is_called_with_what_was_entered_and_the_call_is_listed(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        opened(page, "tools//search%3Asearch")
        page.get_by_label("query").fill("one\ntwo <b>")
        page.get_by_role("button", name="Call").click()
        expect(page.locator(".verdict")).to_contain_text("Done")
        shown = json.loads(page.locator(".result > pre").inner_text())
        assert shown == {"tool": "search", "arguments": {"query": "one\ntwo <b>"}}
        page.get_by_role("link", name="Calls").click()
        latest = page.locator("#view-calls tbody tr").first
        for words in ("search", "default", "ok", " ms"):
            expect(latest).to_contain_text(words)
        expect(page.locator("#view-calls")).not_to_contain_text("two")


def test_the_fields_of_a_form_are_those_of_the_schema(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        page.route("**/tools/call", lambda route: route.fulfill(json={"content": [], "sent": route.request.post_data}))
        opened(page, VIEWS[3])
        call = page.get_by_role("button", name="Call", exact=True)
        page.get_by_label("path").fill("src")
        page.get_by_label("max_count").fill("0")
        call.click()
        expect(page.get_by_text("max_count must be at least 1")).to_be_visible()
        expect(page.get_by_label("max_count")).to_be_focused()
        page.get_by_label("max_count").fill("7")
        page.get_by_role("button", name="Add to authors").click()
        page.get_by_role("textbox", name=re.compile("authors")).fill("ann")
        page.get_by_label("order").select_option("author")
        page.get_by_label("follow_renames").select_option("true")
        page.get_by_label("since").fill("2026-11-22")
        page.get_by_role("button", name="As JSON").click()
        entered = {"path": "src", "max_count": 7, "order": "author", "since": "2026-11-22"}
        entered |= {"follow_renames": True, "authors": ["ann"]}
        assert json.loads(page.get_by_label("arguments").input_value()) == entered
        page.get_by_label("arguments").fill(json.dumps(entered | {"path": "docs"}))
        page.get_by_role("button", name="As JSON").click()
        expect(page.get_by_label("path")).to_have_value("docs")
        call.click()
        page.get_by_text("Whole result").click()
        sent = json.loads(json.loads(page.locator(".result details pre").inner_text())["sent"])
        assert sent == {"name": "git:git_log", "arguments": entered | {"path": "docs"}}


def test_results_are_shown_as_what_they_are(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        opened(page, "tools//search%3Apicture")
        page.get_by_role("button", name="Call", exact=True).click()
        picture = page.locator(".result img")
        expect(picture).to_be_visible()
        assert picture.evaluate("img => img.decode().then(() => img.naturalWidth)") == 2
        expect(page.locator(".result").get_by_role("link")).to_have_text(["the page"])
        expect(page.locator(".result code")).to_contain_text("a trap: javascript:")
        opened(page, "tools//git%3Agit_reset")
        page.get_by_role("button", name="Call", exact=True).click()
        expect(page.get_by_text("path is required")).to_have_count(0)
        expect(page.get_by_role("dialog")).to_contain_text("may destroy something")
        page.get_by_role("button", name="Call it").click()
        expect(page.locator(".verdict")).to_contain_text("The tool says that it failed")


def test_a_call_can_be_cancelled(chromium: Browser, closed_hub: str) -> None:
    with page_of(chromium, closed_hub) as page:
        page.get_by_label("API key or token").fill("boss")
        page.get_by_role("button", name="Open the dashboard").click()
        opened(page, "tools//fetch%3Ahold")
        page.get_by_role("button", name="Call", exact=True).click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".verdict")).to_have_text("Cancelled.")
        opened(page, "calls")
        expect(page.locator("#view-calls tbody tr").first).to_contain_text("cancelled")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_in_either_theme(chromium: Browser, hub: str, scheme: Any) -> None:
    with page_of(chromium, hub, color_scheme=scheme) as page:
        for view in VIEWS:
            opened(page, view)
            assert page.evaluate(CONTRASTS) == [], (scheme, view)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 23)"
        assert dark == (scheme == "dark")
        page.get_by_label("Theme").select_option("dark" if scheme == "light" else "light")
        page.reload()
        expect(page.get_by_label("Theme")).to_have_value("dark" if scheme == "light" else "light")
        assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 23)") != dark


def test_a_phone_shows_all_of_it_without_scrolling_sideways(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True) as page:
        for view in VIEWS:
            opened(page, view)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        opened(page, VIEWS[3])
        page.get_by_label("path").fill("x" * 200)
        page.get_by_role("button", name="Call", exact=True).tap()
        expect(page.locator(".verdict")).to_contain_text("Done")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("link", name="All tools").tap()
        expect(page.get_by_role("link", name="git_log")).to_be_visible()


def test_a_tool_is_called_by_keyboard_alone(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        keys = page.keyboard
        row(page, "git").wait_for()
        keys.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        for _ in range(3):
            keys.press("Tab")
        expect(page.get_by_role("link", name="Tools", exact=True)).to_be_focused()
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        keys.press("Enter")
        page.locator("#tools-list a").first.wait_for()
        for _ in range(6):  # calls, access, theme, group, kind, filter
            keys.press("Tab")
        expect(page.get_by_label("Filter", exact=True)).to_be_focused()
        keys.type("commit")
        expect(page.locator("#tools-list a")).to_have_count(2)  # git_log is about commits
        for key in ("Tab", "ArrowDown", "End", "Home", "ArrowDown", "ArrowDown", "Enter"):
            keys.press(key)
        expect(page.get_by_role("heading", name="git:git_commit")).to_be_focused()
        keys.press("Tab")
        keys.type("Fix it")
        keys.press("Control+Enter")
        expect(page.locator(".result > pre")).to_contain_text("Fix it")
        expect(page.locator("#announcer")).to_contain_text("Done")


def test_what_is_wrong_stands_first_and_states_are_chosen_by_chips(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        rows = page.locator("#servers-table tbody tr")
        expect(rows.first).to_contain_text("mail")
        chips = page.locator("#servers-chips")
        chips.get_by_role("button", name="running (3)").click()
        expect(rows).to_have_count(3)
        chips.get_by_role("button", name="failed (1)").click()
        expect(rows).to_have_count(1)
        chips.get_by_role("button", name="all (4)").click()
        page.get_by_label("Filter servers").fill("git")
        expect(rows).to_have_count(1)
        page.get_by_label("Filter servers").fill("")
        page.get_by_label("Sort servers").select_option("name")
        expect(rows.first).to_contain_text("calendar")


def test_the_last_hour_is_drawn_for_each_server_and_the_hub(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        call = {"name": "search:search", "arguments": {"query": "drawn"}}
        page.request.post(f"{hub}mcp/tools/call", data=call)
        page.reload()
        expect(row(page, "search").locator("svg.spark")).to_have_attribute(
            "aria-label", re.compile("calls in the last hour")
        )
        expect(page.locator("#hub-history")).to_contain_text("calls a minute")


def test_an_operator_sees_stderr_and_stops_and_starts_a_server(chromium: Browser) -> None:
    app = build_aggregator(config(a=lean(stderr=["a word of its own"]), b=lean()), strict=False)
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        expect(row(page, "a")).to_contain_text("running")
        row(page, "a").get_by_role("button", name="a", exact=True).click()
        expect(page.locator("dialog .stderr")).to_contain_text("a word of its own")
        page.get_by_role("button", name="Stop", exact=True).click()
        page.locator("dialog.question").get_by_role("button", name="Stop").click()
        expect(page.locator("dialog [role=status]")).to_have_text("It is being stopped.")
        page.get_by_role("button", name="Close").click()
        expect(row(page, "a")).to_contain_text("stopped")
        row(page, "a").get_by_role("button", name="a", exact=True).click()
        page.get_by_role("button", name="Start", exact=True).click()
        page.locator("dialog.question").get_by_role("button", name="Restart").click()
        page.get_by_role("button", name="Close").click()
        expect(row(page, "a")).to_contain_text("running")
        page.get_by_role("link", name="Access").click()
        expect(page.locator("#pins-summary")).to_have_text("Pins are off.")


def test_definitions_are_approved_once_all_that_differs_was_shown(chromium: Browser, tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    write_pins(pins, {})
    app = build_aggregator(config(a=lean(tool_names=[f"t{number}" for number in range(70)])), pins=str(pins))
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        expect(row(page, "a")).to_contain_text("running")
        page.get_by_role("link", name="Access").click()
        differences, approve = page.locator("#pins-list details"), page.get_by_role("button", name="Approve all of a")
        expect(differences).to_have_count(50)
        expect(approve).to_be_hidden()
        page.get_by_role("button", name=re.compile("Show .* more")).click()
        expect(approve).to_be_visible()
        expect(differences.nth(70)).to_be_attached()
        approve.click()
        page.locator("dialog.question").get_by_role("button", name="Approve").click()
        expect(page.locator("#pins-summary")).to_have_text("Everything is as pinned.")
    assert "a" in read_pins(pins)


def test_who_does_not_operate_is_offered_nothing_of_it(chromium: Browser, closed_hub: str) -> None:
    with page_of(chromium, closed_hub) as page:
        page.get_by_label("API key or token").fill("guest")
        page.keyboard.press("Enter")
        expect(row(page, "fetch")).to_contain_text("running")
        expect(page.get_by_role("link", name="Access")).to_be_hidden()
        expect(page.get_by_role("button", name="Restart")).to_have_count(0)
        row(page, "fetch").get_by_role("button", name="fetch").click()
        expect(page.get_by_role("dialog")).to_have_count(0)


NESTED: dict[str, Any] = {
    "where": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}},
    },
    "tags": {"type": "array", "items": {"enum": ["red", "blue"]}},
    "shape": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
                "required": ["kind"],
            },
            {
                "type": "object",
                "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
                "required": ["kind"],
            },
        ]
    },
    "level": {"enum": ["low", "high"], "default": "high"},
}


def test_objects_arrays_and_choices_of_schemas_have_fields(chromium: Browser) -> None:
    schema = {"type": "object", "properties": NESTED, "required": ["where", "level"]}
    made = {"name": "nested", "inputSchema": schema}
    app = build_aggregator(config(a=lean(results={"tools/list": {"tools": [made]}, "tools/call": {"content": []}})))
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        page.route("**/tools/call", lambda route: route.fulfill(json={"content": [], "sent": route.request.post_data}))
        opened(page, "tools//a%3Anested")
        call = page.get_by_role("button", name="Call", exact=True)
        expect(page.get_by_label("level")).to_have_value('"high"')
        page.get_by_label("zip").fill("1.5")
        call.click()
        expect(page.get_by_text("zip must be a whole number")).to_be_visible()
        page.get_by_label("city").fill("Ulm")
        page.get_by_label("zip").fill("89073")
        for colour in ("red", "blue", "red"):
            page.get_by_role("button", name="Add to tags").click()
            page.locator(".items select").last.select_option(f'"{colour}"')
        page.get_by_role("button", name="Remove tags[1]").click()
        page.get_by_label("Kind of shape").select_option("1")
        page.get_by_label("side").fill("2.5")
        entered = {
            "where": {"city": "Ulm", "zip": 89073},
            "level": "high",
            "tags": ["red", "red"],
            "shape": {"kind": "square", "side": 2.5},
        }
        page.get_by_role("button", name="As JSON").click()
        assert json.loads(page.get_by_label("arguments").input_value()) == entered
        changed = {**entered, "shape": {"kind": "circle", "radius": 1}, "tags": ["blue"]}
        page.get_by_label("arguments").fill(json.dumps(changed))
        page.get_by_role("button", name="As JSON").click()
        expect(page.get_by_label("radius")).to_have_value("1")
        call.click()
        page.get_by_text("Whole result").click()
        sent = json.loads(json.loads(page.locator(".result details pre").inner_text())["sent"])
        assert sent["arguments"] == changed


def test_a_schema_that_refers_to_itself_has_a_form_of_bounded_size(chromium: Browser) -> None:
    """What has no room for fields of its own is written as JSON."""
    itself = {"$ref": "#/$defs/A"}
    definitions = {
        "A": {"type": "object", "properties": {f"p{number}": itself for number in range(40)}},
        "Choice": {"oneOf": [{"$ref": "#/$defs/Choices"}, {"type": "string"}]},
        "Choices": {
            "type": "object",
            "properties": {f"p{number}": {"$ref": "#/$defs/Choice"} for number in range(40)},
            "required": [f"p{number}" for number in range(40)],
        },
        "List": {"type": "array", "items": {"$ref": "#/$defs/List"}, "minItems": 10},
    }
    schemas = {
        "objects": {"properties": {"a": itself}},
        "choices": {"properties": {"a": {"$ref": "#/$defs/Choice"}}, "required": ["a"]},
        "lists": {"properties": {"a": {"$ref": "#/$defs/List"}}},
        "flat": {"properties": {f"p{number}": {"type": "string"} for number in range(600)}},
    }
    tools = [
        {"name": name, "inputSchema": {"type": "object", **schema, "$defs": definitions}}
        for name, schema in schemas.items()
    ]
    app = build_aggregator(config(a=lean(results={"tools/list": {"tools": tools}, "tools/call": {"content": []}})))
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        for name in schemas:
            opened(page, f"tools//a%3A{name}")
            assert page.locator(".arguments .field").count() <= 502
        expect(page.get_by_label("arguments")).to_be_visible()
        page.get_by_label("arguments").fill('{"p599": "x"}')
        page.get_by_role("button", name="Call", exact=True).click()
        expect(page.locator(".verdict")).to_contain_text("Done")
        opened(page, "tools//a%3Aobjects")
        page.locator("textarea:visible").first.fill('{"p7": {}}')
        page.get_by_role("button", name="As JSON").click()
        entered = page.get_by_label("arguments").input_value()
        assert json.loads(entered) == {"a": {"p0": {"p0": {"p0": {"p0": {"p7": {}}}}}}}
        for _ in range(3):  # fields that are made anew have the room of those before
            page.get_by_role("button", name="As JSON").click()
            page.get_by_role("button", name="As JSON").click()
            assert page.get_by_label("arguments").input_value() == entered
        opened(page, "tools//a%3Achoices")
        for kind in ("1", "0"):
            page.get_by_label("Kind of a").select_option(kind)
        assert 400 < page.locator(".arguments .field").count() <= 502
        opened(page, "tools//a%3Alists")
        page.get_by_role("button", name="Add to a", exact=True).click()
        page.get_by_role("button", name="Remove a[10]", exact=True).click()


def test_resources_and_prompts_are_there_beside_tools(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        opened(page, "tools")
        for kind in ("resources", "prompts"):
            page.get_by_label("Kind").select_option(kind)
            page.locator("#tools-list a").first.click()
            page.locator("form.call button.primary").click()
            expect(page.locator(".verdict")).to_be_visible()


def test_odd_names_and_addresses_keep_nothing_from_being_shown(chromium: Browser) -> None:
    odd = [{"uri": uri, "name": uri} for uri in ("x://%zz/a", "x://good/a")]
    app = build_aggregator(config(constructor=lean(resources=odd), toString=lean()), prefix=False, strict=False)
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        expect(row(page, "constructor")).to_contain_text("running")
        expect(row(page, "toString")).to_contain_text("running")
        opened(page, "tools")
        page.get_by_label("Kind").select_option("resources")
        expect(page.locator("#tools-list a", has_text="x://%zz/a")).to_be_visible()
        expect(page.locator("#tools-list a", has_text="x://good/a")).to_be_visible()


def test_nothing_of_another_kind_can_be_chosen_while_a_list_is_loaded(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        opened(page, "tools")
        page.evaluate(HELD_BACK, "resources/list")
        page.get_by_label("Kind").select_option("resources")
        expect(page.locator("#tools-summary")).to_have_text("Loading…")
        expect(page.locator("#tools-list a")).to_have_count(0)
        page.evaluate("() => go()")
        page.locator("#tools-list a").first.wait_for()


def test_calls_are_filtered_and_made_again(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub) as page:
        opened(page, "tools//search%3Asearch")
        page.get_by_label("query").fill("once more")
        page.get_by_role("button", name="Call", exact=True).click()
        expect(page.locator(".verdict")).to_contain_text("Done")
        opened(page, "calls")
        rows = page.locator("#view-calls tbody tr")
        page.get_by_label("Filter calls").fill("search:no such")
        expect(rows).to_have_count(0)
        page.get_by_label("Filter calls").fill("search")
        rows.first.get_by_role("link", name="Again").click()
        expect(page.get_by_label("query")).to_have_value("once more")


def test_addresses_and_entries_for_clients_are_copied(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub, permissions=["clipboard-read", "clipboard-write"]) as page:
        opened(page, "groups")
        coding = page.locator("article").filter(has_text="Repositories and searches")
        coding.get_by_role("button", name="Copy address").click()
        page.wait_for_function(COPIED, arg=f"{hub}groups/coding/mcp")
        coding.get_by_text("Connect a client").click()
        coding.get_by_label("Client").select_option("VS Code")
        coding.get_by_role("button", name="Copy", exact=True).click()
        page.wait_for_function(COPIED, arg="{")
        copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
        assert copied == {"servers": {"coding": {"type": "http", "url": f"{hub}groups/coding/mcp"}}}


def test_thousands_of_tools_are_quick_to_filter_and_no_list_is_over_200_rows(chromium: Browser) -> None:
    tools = [
        {"name": f"tool_{number}", "description": "x" * 60, "inputSchema": {"type": "object"}} for number in range(20)
    ]
    many = {f"server-{number}": lean(results={"tools/list": {"tools": tools}}) for number in range(100)}
    app = memory.build_aggregator(config(**many), strict=False)
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        expect(page.locator("#servers-summary")).to_have_text("100 of 100 servers running")
        opened(page, "groups")
        assert page.locator("#groups-list .tools a").count() <= 200
        page.evaluate("location.hash = 'tools'")
        expect(page.locator("#tools-summary")).to_have_text("2000 tools")
        assert page.locator("#tools-list a").count() <= 200
        took = []
        for text_entered in ("t", "to", "too", "tool", "tool_1", "tool_19", ""):
            began = processor_seconds(page)
            page.evaluate(ENTERED, text_entered)
            took.append(processor_seconds(page) - began)
        assert max(took) < 0.5, took
        for entered, found in (("tool_1", 1100), ("tool_19", 100), ("tool_1", 1100), ("1 tool_", 1271)):
            page.get_by_label("Filter", exact=True).fill(entered)
            expect(page.locator("#tools-summary")).to_have_text(f"{found} of 2000 tools")
            expect(page.locator("#tools-list a")).to_have_count(min(found, 200))
        # Where a look at one server takes longer than a slice, the others are looked at in later ones.
        page.evaluate("{ let now = 0; performance.now = () => (now += 10); }")
        for entered, found in (("tool_3", 100), ("server-77:tool_1", 11), ("", 2000)):
            page.get_by_label("Filter", exact=True).fill(entered)
            expect(page.locator("#tools-summary")).to_have_text(f"{found} of 2000 tools" if entered else "2000 tools")


def test_more_tools_are_listed_than_a_function_takes_arguments(chromium: Browser, hub: str) -> None:
    listed = """async () => {
        const { listAll } = await import("/dashboard/api.js");
        window.fetch = async () => new Response(JSON.stringify({ tools: new Array(200000).fill({ name: "t" }) }));
        return (await listAll("mcp", "tools/list", "tools")).length;
    }"""
    with page_of(chromium, f"{hub}#tools") as page:
        page.locator("#tools-list a").first.wait_for()
        assert page.evaluate(listed) == 200_000


def test_files_that_are_refused_and_keys_that_expire_are_told_on_every_part_of_the_page(chromium: Browser) -> None:
    app = memory.build_aggregator(config(a=lean()))
    key = {"id": "1a2b", "name": "ann", "expires": "2027-01-02T00:00:00+00:00"}
    noticed = {"refused_files": {"config": {"since": 3.0, "problem": "mcp.json: <b>"}}, "expiring_keys": [key]}

    def answer(route: Route) -> None:
        response = route.fetch()
        if response.ok:
            route.fulfill(response=response, json={**response.json(), **noticed})
        else:
            route.fulfill(response=response)

    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        expect(row(page, "a")).to_contain_text("running")
        expect(page.locator("#notices")).to_be_empty()
        page.route("**/dashboard/state", answer)
        page.reload()
        for view in ("servers", "calls"):
            page.evaluate("view => { location.hash = view; }", view)
            expect(page.locator("#notices p")).to_have_text(
                [
                    "The config file is refused as it is now, and what it said before stays in use: mcp.json: <b>",
                    "The key 1a2b of ann expires on 2027-01-02.",
                ]
            )
        page.unroute_all(behavior="ignoreErrors")


def test_keys_and_servers_are_shown_by_the_two_hundred(chromium: Browser) -> None:
    """What is listed for operators is bounded, too."""
    app = memory.build_aggregator(config(**{f"server-{number}": lean() for number in range(201)}), strict=False)
    keys = [{"id": f"{n}", "name": f"key-{n}", "groups": None, "roles": ["call"]} for n in range(500)]
    missing = {"created": None, "expires": None, "last_used": None}
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        page.route("**/keys", lambda route: route.fulfill(json={"keys": [{**key, **missing} for key in keys]}))
        expect(page.locator("#servers-table tbody tr")).to_have_count(200)
        page.evaluate("location.hash = 'groups'")
        expect(page.locator("#groups-list .parts > li")).to_have_count(200)
        expect(page.locator("#groups-list .parts-rest")).to_have_text("and 1 more server")
        page.evaluate("location.hash = 'operator'")
        expect(page.locator("#keys-summary")).to_have_text("200 of 500 keys")
        expect(page.locator("#keys-table tbody tr")).to_have_count(200)
        page.get_by_label("Filter keys").fill("key-499")
        expect(page.locator("#keys-table tbody tr")).to_have_count(1)


def test_a_tool_is_taken_out_of_service_and_put_back(chromium: Browser) -> None:
    app = memory.build_aggregator(config(a=lean(), b=lean()), strict=False)
    with served(app.http_app()) as origin, page_of(chromium, f"{origin}/") as page:
        for _ in range(2):
            opened(page, "tools//a%3Aecho")
            page.get_by_role("button", name="Take out of service").click()
            page.get_by_role("button", name="Take it out").click()
            expect(page.locator("#tool .gone")).to_have_text("a has this tool, but it is out of service.")
            page.reload()
            expect(page.locator("#tool .gone")).to_be_visible()
            page.get_by_role("button", name="Put back into service").click()
            expect(page.get_by_role("button", name="Take out of service")).to_be_visible()
            opened(page, "servers")
        opened(page, "tools//a%3Aecho")
        page.get_by_role("button", name="Take out of service").click()
        page.get_by_role("button", name="Take it out").click()
        opened(page, "servers")
        expect(row(page, "a")).to_contain_text("1 tool out of service")
        row(page, "a").get_by_role("button", name="a", exact=True).click()
        out = page.locator("dialog .withdrawn li")
        expect(out).to_contain_text("echo")
        out.get_by_role("button", name="Put back").click()
        expect(out).to_have_count(0)
        page.get_by_role("button", name="Close").click()
        expect(row(page, "a")).not_to_contain_text("out of service")


def test_what_is_being_entered_survives_calls_and_restarts(chromium: Browser, hub: str, broken: Path) -> None:
    with page_of(chromium, hub) as page:
        opened(page, "tools//search%3Asearch")
        page.get_by_label("query").fill("Half a")
        call = {"name": "search:fetch_page", "arguments": {"url": "https://example.org"}}
        page.request.post(f"{hub}mcp/tools/call", data=call)
        expect(page.locator("#view-servers [data-calls] tbody tr").first).to_contain_text("fetch_page")
        broken.touch()
        os.kill(process_of(page, "search"), signal.SIGKILL)
        expect(page.get_by_text("The server that has this tool is not available now.")).to_be_visible()
        broken.unlink()
        while not page.request.post(f"{hub}mcp/tools/call", data=call).ok:  # an attempt may have begun before
            continue
        expect(page.get_by_text("The server that has this tool is not available now.")).to_be_hidden()
        expect(page.get_by_label("query")).to_have_value("Half a")
        expect(page.get_by_label("query")).to_be_focused()


def test_a_lost_connection_is_told_and_found_again(chromium: Browser, hub: str) -> None:
    with page_of(chromium, hub, tolerates="net::ERR_INTERNET_DISCONNECTED") as page:
        expect(page.locator("#connection")).to_have_text("Live")
        page.context.set_offline(True)
        # A request that waits is answered when something is new.
        call = {"name": "search:search", "arguments": {"query": "new"}}
        httpx2.post(f"{hub}mcp/tools/call", json=call, trust_env=False)
        expect(page.locator("#connection")).to_have_text("Connection lost, trying again")
        page.context.set_offline(False)
        expect(page.locator("#connection")).to_have_text("Live")


def test_a_key_is_asked_for_kept_in_the_tab_and_forgotten(chromium: Browser, closed_hub: str) -> None:
    with page_of(chromium, closed_hub, tolerates="401") as page:
        key = page.get_by_label("API key or token")
        expect(key).to_be_focused()
        key.fill("wrong")
        key.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("This key is not accepted")
        key.fill("boss")
        key.press("Enter")
        expect(row(page, "fetch")).to_contain_text("running")
        expect(page.locator("#viewer")).to_have_text("Signed in as boss")
        assert "boss" not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        page.reload()
        expect(row(page, "fetch")).to_contain_text("running")
        page.get_by_role("button", name="Forget key").click()
        expect(key).to_be_focused()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_member_sees_a_group_and_its_own_calls(chromium: Browser, closed_hub: str) -> None:
    with page_of(chromium, closed_hub) as page:
        page.get_by_label("API key or token").fill("guest")
        page.keyboard.press("Enter")
        expect(page.locator("#servers-table tbody tr")).to_have_count(1)
        expect(row(page, "fetch")).to_contain_text("1 tool")
        expect(page.get_by_role("columnheader", name="In flight")).to_be_hidden()
        opened(page, "tools")
        page.locator("#tools-list a").click()
        page.get_by_role("button", name="Call", exact=True).click()
        expect(page.locator(".verdict")).to_contain_text("Done")
        opened(page, "calls")
        expect(page.locator("#view-calls tbody tr")).to_have_count(1)
        expect(page.locator("body")).not_to_contain_text("hostile")


def test_the_heading_is_in_view_after_the_key_was_entered(chromium: Browser, closed_hub: str) -> None:
    with page_of(chromium, closed_hub) as page:
        page.get_by_label("API key or token").fill("boss")
        page.keyboard.press("Enter")
        expect(page.locator("#servers-table tbody tr")).to_have_count(2)
        heading, header = page.locator("#servers-title").bounding_box(), page.locator("header.top").bounding_box()
        assert heading is not None
        assert header is not None
        assert heading["y"] >= header["y"] + header["height"]


def test_characters_that_nobody_sees_become_marks(chromium: Browser, closed_hub: str) -> None:
    with page_of(chromium, closed_hub, tolerates="400") as page:
        page.get_by_label("API key or token").fill("boss")
        page.keyboard.press("Enter")
        opened(page, "tools?redro")
        page.locator("#tools-list a").click()
        expect(page.locator("#tool-name")).to_have_text("hostile:[U+202E]redro")
        expect(page.locator(".detail .description")).to_have_text("a[U+200B]b [U+2066]c")
        expect(page.locator("#argument-0-notes")).to_have_text("[U+202D]")
        page.get_by_label("query").fill("x")
        page.get_by_role("button", name="Call", exact=True).click()
        expect(page.locator(".verdict")).to_be_visible()
        assert not re.search("[\u200b\u202a-\u202e\u2066-\u2069]", page.locator("body").inner_text())


def test_what_servers_say_of_themselves_is_never_markup(chromium: Browser, closed_hub: str) -> None:
    with page_of(chromium, closed_hub) as page:
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        page.get_by_label("API key or token").fill("boss")
        page.keyboard.press("Enter")
        opened(page, "tools?img")
        page.locator("#tools-list a").click()
        expect(page.locator(".detail .description")).to_have_text(MARKUP)
        expect(page.locator("#argument-0-notes")).to_have_text(MARKUP)
        assert page.locator("main img, main script").count() == 0
