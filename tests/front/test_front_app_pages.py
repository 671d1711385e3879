"""Pages of apps as clients read them, and calls under a server's own names."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.harness import config, connected, lean
from support.memory import build_aggregator
from support.wire import text_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENT_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
SHOWS_APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
HTML = "<!doctype html><p>Hello"


def page_of(mime_type: str = "text/html;profile=mcp-app", **options: Any) -> dict[str, Any]:
    """A server with a page."""
    contents = [{"uri": "ui://app", "mimeType": mime_type, "text": HTML}]
    return lean(
        resources=[{"uri": "ui://app", "name": "app"}], results={"resources/read": {"contents": contents}}, **options
    )


def names_in(page: str) -> Any:
    """What the script of a page was told."""
    return json.loads(page[page.rindex("})(") + 3 : page.index(");</script>")])


@CLIENT_ERAS
async def test_a_page_is_read_with_its_servers_names_as_its_client_knows_them(modern: bool) -> None:
    document = config(clock=page_of(tool_names=["get-time", "hidden"]), other=lean(tool_names=["get-time"]))
    settings = {"servers": {"clock": {"tools": {"hidden": {"hidden": True}, "pid": {"name": "number"}}}}}
    async with (
        build_aggregator(document, **settings) as app,
        connected(app, modern=modern) as client,
        connected(app, modern=modern, name="claude-ai") as strict,
    ):
        parts = [
            (await each.result("resources/read", {"uri": "ui://clock/app"}))["contents"] for each in (client, strict)
        ]
    [[page], [strict_page]] = parts
    assert page["uri"] == "ui://clock/app"
    assert page["text"].startswith("<!doctype html><script>")
    assert page["text"].endswith("</script><p>Hello")
    names = names_in(page["text"])
    assert names["key"] == names["host"] == "clock"
    assert names["tools"]["get-time"] == "clock:get-time"
    assert names["tools"]["pid"] == "clock:number"
    assert "hidden" not in names["tools"]
    assert names_in(strict_page["text"])["tools"]["get-time"] == "clock__get-time"


@pytest.mark.parametrize(
    ("server", "settings"),
    [(page_of("text/html"), {}), (page_of(), {"rewrite_app_pages": False})],
    ids=["no page of an app", "turned off"],
)
async def test_other_pages_are_read_as_they_are(server: dict[str, Any], settings: dict[str, Any]) -> None:
    async with build_aggregator(config(clock=server), **settings) as app, connected(app) as client:
        result = await client.result("resources/read", {"uri": "ui://clock/app"})
    assert result["contents"][0]["text"] == HTML


@CLIENT_ERAS
async def test_a_client_that_shows_apps_may_use_a_name_that_only_one_server_has(modern: bool) -> None:
    document = config(clock=lean(tool_names=["both"]), other=lean(tools=1, tool_names=["both"]))
    call = ("tools/call", {"name": "tool_0"})
    async with (
        build_aggregator(document) as app,
        connected(app, modern=modern, capabilities=SHOWS_APPS) as host,
        connected(app, modern=modern) as other,
    ):
        assert text_of(await host.result(*call)) == text_of(await other.result("tools/call", {"name": "other:tool_0"}))
        assert "must be prefixed" in (await other.error(*call))["message"]
        assert "'both' is not unique here" in (await host.error("tools/call", {"name": "both"}))["message"]
        assert (await host.error("tools/call", {"name": "none"}))["code"] == -32602
