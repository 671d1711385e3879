"""The script of a page in a real browser: what the page says and hears, and what its host does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastmcp_aggregator.app_pages.page import PageNames, with_own_names

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page
from support.chromium import CHROMIUM, launched

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; on Debian: apt-get install chromium"),
    pytest.mark.browser,
]

Message = dict[str, Any]

CLOCK = PageNames("clock", "clock", {"get-time": "clock__get-time"}, {"greet": "clock__greet"})
UNPREFIXED = PageNames("clock", None, {"get-time": "get-time"}, {})
TIME = {"name": "clock__get-time", "title": "Time", "_meta": {"ui": {"resourceUri": "ui://clock/app"}}}
OTHERS = {"name": "other__get-time"}
LINKS = [
    {"type": "text", "text": "ui://clock/app"},
    {"type": "resource_link", "uri": "ui://clock/app", "name": "n"},
    {"type": "resource", "resource": {"uri": "urn://clock:/isbn:1", "text": "t"}},
    {"type": "resource_link", "uri": "https://other/a", "name": "another server's"},
]
OWN_LINKS = [
    {"type": "text", "text": "ui://clock/app"},
    {"type": "resource_link", "uri": "ui://app", "name": "n"},
    {"type": "resource", "resource": {"uri": "urn:isbn:1", "text": "t"}},
    {"type": "resource_link", "uri": "https://other/a", "name": "another server's"},
]

HOST = """
(html) => new Promise((shown) => {
  window.heard = [];
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  window.addEventListener("message", (event) => {
    if (event.source !== frame.contentWindow) throw new Error("from elsewhere");
    if (event.data === "shown") shown();
    else window.heard.push(event.data);
  });
  window.tell = (message) => frame.contentWindow.postMessage(message, "*");
  frame.srcdoc = html;
  document.body.append(frame);
})
"""
PAGE = """<!doctype html><head></head><script>
  window.heard = [];
  window.addEventListener("message", (event) => {
    if (event.source !== window.parent) throw new Error("from elsewhere");
    window.heard.push(event.data);
  });
  window.say = (message) => window.parent.postMessage(message, "*");
  window.parent.postMessage("shown", { targetOrigin: "*" });
</script>"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(params=[CLOCK], ids=["prefixed"])
def shown(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A host that shows a page."""
    part = {"mimeType": "text/html;profile=mcp-app", "text": PAGE}
    html = with_own_names({"contents": [part]}, request.param)["contents"][0]["text"]
    errors: list[str] = []
    page = chromium.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.evaluate(HOST, html)
    yield page
    page.close()
    assert errors == []


def said(shown: Page, message: Any) -> Any:
    """What the host hears when the page says something."""
    shown.frames[1].evaluate("say", message)
    shown.wait_for_function("heard.length > 0")
    return shown.evaluate("heard.shift()")


def told(shown: Page, message: Any) -> Any:
    """What the page hears when the host says something."""
    shown.evaluate("tell", message)
    shown.frames[1].wait_for_function("heard.length > 0")
    return shown.frames[1].evaluate("heard.shift()")


def request(method: str, params: Message | None = None) -> Message:
    return {"jsonrpc": "2.0", "id": 7, "method": method, **({} if params is None else {"params": params})}


def result(result: Any) -> Message:
    return {"jsonrpc": "2.0", "id": 7, "result": result}


ASKED: list[tuple[str, Message, Message]] = [
    (
        "tools/call",
        {"name": "get-time", "arguments": {"name": "get-time"}, "_meta": {"a": 1}},
        {"name": "clock__get-time"},
    ),
    ("tools/call", {"name": "unlisted"}, {"name": "clock:unlisted"}),
    ("tools/call", {"name": "__proto__"}, {"name": "clock:__proto__"}),
    ("tools/call", {"name": None}, {}),
    ("prompts/get", {"name": "greet"}, {"name": "clock__greet"}),
    ("resources/read", {"uri": "ui://app"}, {"uri": "ui://clock/app"}),
    ("resources/read", {"uri": "ui://clock/app"}, {"uri": "ui://clock/clock/app"}),
    ("resources/read", {"uri": "file:///a/b"}, {"uri": "file://clock//a/b"}),
    ("resources/subscribe", {"uri": "urn:isbn:1"}, {"uri": "urn://clock:/isbn:1"}),
    ("resources/read", {"uri": "no address"}, {}),
    ("ui/message", {"role": "user", "content": OWN_LINKS[1:3]}, {"content": LINKS[1:3]}),
    ("ui/update-model-context", {"content": OWN_LINKS[:3]}, {"content": LINKS[:3]}),
    ("ui/open-link", {"url": "ui://app", "uri": "ui://app", "name": "get-time"}, {}),
]


@pytest.mark.parametrize(("method", "params", "changed"), ASKED, ids=[f"{m} {str(p)[:40]}" for m, p, _ in ASKED])
def test_the_host_hears_names_that_it_knows(shown: Page, method: str, params: Message, changed: Message) -> None:
    assert said(shown, request(method, params)) == request(method, {**params, **changed})


ANSWERED: list[tuple[str, Message, Message]] = [
    ("tools/call", {"content": LINKS, "isError": False}, {"content": OWN_LINKS}),
    ("tools/call", {"structuredContent": {"uri": "ui://clock/app"}}, {}),
    (
        "prompts/get",
        {"messages": [{"role": "user", "content": LINKS[1]}]},
        {"messages": [{"role": "user", "content": OWN_LINKS[1]}]},
    ),
    (
        "resources/read",
        {"contents": [{"uri": "ui://clock/app", "text": "ui://clock/app"}]},
        {"contents": [{"uri": "ui://app", "text": "ui://clock/app"}]},
    ),
    (
        "tools/list",
        {"tools": [TIME, OTHERS]},
        {"tools": [{"name": "get-time", "title": "Time", "_meta": {"ui": {"resourceUri": "ui://app"}}}]},
    ),
    ("prompts/list", {"prompts": [{"name": "clock__greet"}, {"name": "greet"}]}, {"prompts": [{"name": "greet"}]}),
    (
        "resources/list",
        {"resources": [{"uri": "ui://clock/app"}, {"uri": "ui://other/app"}]},
        {"resources": [{"uri": "ui://app"}]},
    ),
    (
        "resources/templates/list",
        {"resourceTemplates": [{"uriTemplate": "a://clock/{x}"}, {"uriTemplate": "a://{x}"}]},
        {"resourceTemplates": [{"uriTemplate": "a://{x}"}]},
    ),
    (
        "ui/initialize",
        {"hostContext": {"theme": "dark", "toolInfo": {"id": 1, "tool": TIME}}},
        {
            "hostContext": {
                "theme": "dark",
                "toolInfo": {
                    "id": 1,
                    "tool": {"name": "get-time", "title": "Time", "_meta": {"ui": {"resourceUri": "ui://app"}}},
                },
            }
        },
    ),
    ("ui/initialize", {"hostContext": {}}, {}),
    ("tools/call", {}, {}),
]


@pytest.mark.parametrize(("method", "answer", "changed"), ANSWERED, ids=[f"{m} {str(a)[:40]}" for m, a, _ in ANSWERED])
def test_the_page_hears_names_that_its_server_knows(
    shown: Page, method: str, answer: Message, changed: Message
) -> None:
    said(shown, request(method, {}))
    assert told(shown, result(answer)) == result({**answer, **changed})


def test_an_answer_is_read_as_that_of_its_own_request(shown: Page) -> None:
    said(shown, request("tools/call", {"name": "get-time"}))
    assert (
        told(shown, {"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "no"}})["error"]["code"] == -32602
    )
    assert told(shown, result({"content": LINKS})) == result({"content": LINKS})


NOTIFIED: list[tuple[str, Message, Message]] = [
    ("ui/notifications/tool-result", {"content": LINKS}, {"content": OWN_LINKS}),
    (
        "ui/notifications/host-context-changed",
        {"toolInfo": {"tool": {"name": "clock__get-time"}}},
        {"toolInfo": {"tool": {"name": "get-time"}}},
    ),
    ("notifications/resources/updated", {"uri": "ui://clock/app"}, {"uri": "ui://app"}),
    ("ui/notifications/tool-input", {"arguments": {"uri": "ui://clock/app"}}, {}),
]


@pytest.mark.parametrize(("method", "params", "changed"), NOTIFIED, ids=[m for m, _, _ in NOTIFIED])
def test_the_page_is_notified_under_its_servers_names(
    shown: Page, method: str, params: Message, changed: Message
) -> None:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    assert told(shown, message) == {**message, "params": {**params, **changed}}


@pytest.mark.parametrize("message", ["text", 1, None, [1], {"method": "tools/call", "params": {"name": "get-time"}}])
def test_what_is_no_json_rpc_passes_as_it_is(shown: Page, message: Any) -> None:
    assert said(shown, message) == message
    assert told(shown, message) == message


@pytest.mark.parametrize("shown", [UNPREFIXED], indirect=True)
def test_without_prefixes_only_what_is_not_listed_is_named_with_its_server(shown: Page) -> None:
    assert said(shown, request("tools/call", {"name": "get-time"}))["params"] == {"name": "get-time"}
    assert said(shown, request("tools/call", {"name": "send"}))["params"] == {"name": "clock:send"}
    assert said(shown, request("resources/read", {"uri": "ui://app"}))["params"] == {"uri": "ui://app"}
    assert told(shown, result({"contents": [{"uri": "ui://app"}]})) == result({"contents": [{"uri": "ui://app"}]})
