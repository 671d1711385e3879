"""Official example servers with pages (MCP Apps), shown by the reference host in a real browser.

Each page is shown twice: its server alone, and all servers behind an aggregator, four of them with tools of the same
name. All its buttons are pressed. What the page does, says and shows must be the same.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from install_servers import APPS, apps_folder, node_script
from real_servers import FOLDER, requires_servers

from fastmcp_aggregator import build_aggregator

pytest.importorskip("playwright.async_api", reason="playwright is not installed")
from playwright.async_api import Browser, Frame, Page, async_playwright
from support.chromium import CHROMIUM

pytestmark = [
    pytest.mark.real,
    requires_servers,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; on Debian: apt-get install chromium"),
    pytest.mark.asyncio(loop_scope="session"),
]

Json = dict[str, Any]

FOLDER_OF_APPS = apps_folder(FOLDER)
_PREFIX = "@modelcontextprotocol/server-"
KEYS = [package.removeprefix(_PREFIX) for package in APPS["node"] if package.startswith(_PREFIX)]
OFTEN = 0.1
"""Seconds between two looks at a page, which has settled when they show the same."""


def entry(key: str) -> Json:
    return {"command": "node", "args": [str(node_script(FOLDER_OF_APPS, _PREFIX + key)), "--stdio"]}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        # Its sandbox refuses to run for root, as whom tests run in containers.
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host as one script."""
    script = tmp_path_factory.mktemp("host") / "host.js"
    modules = FOLDER_OF_APPS / "node" / "node_modules"
    subprocess.run(
        [modules / ".bin" / "esbuild", Path(__file__).parent / "app_host.js", "--bundle", f"--outfile={script}"],
        env={"NODE_PATH": str(modules), "PATH": ""},
        check=True,
        capture_output=True,
    )
    return script


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hub() -> AsyncIterator[Client[Any]]:
    """All servers behind one aggregator."""
    app = build_aggregator({"mcpServers": {key: entry(key) for key in KEYS}})
    async with Client(app, mode="legacy", timeout=60) as client:
        yield client


class Shown:
    """A page in the host, whose MCP client is this one."""

    def __init__(self, client: Client[Any], page: Page) -> None:
        self._client = client
        self._page = page
        self.failures: list[str] = []
        page.on("pageerror", lambda error: self.failures.append(str(error)))

    async def show(self, host: Path, tool: Any) -> None:
        """Call the tool, and show its page."""
        html = (await self._asked("resources/read", {"uri": page_of(tool)}))["contents"][0]["text"]
        call = {"tool": dumped(tool), "result": await self._asked("tools/call", {"name": tool.name})}
        await self._page.expose_function("mcp", self._mcp)
        await self._page.add_script_tag(path=host)
        await self._page.evaluate("([html, call]) => show(html, call)", [html, call])

    async def press_all(self) -> int:
        """Press each button that can be pressed, and wait for what it does; how many there are."""
        buttons = self._frame.locator("button")
        await self._settle()
        for button in await buttons.all():
            if await button.is_visible() and await button.is_enabled():
                await button.click()
            await self._settle()
        return await buttons.count()

    async def did(self) -> list[Any]:
        """What the page asked its host for, and said to it."""
        did: list[Any] = await self._page.evaluate("did")
        return did

    async def text(self) -> str:
        return await self._frame.inner_text("body")

    @property
    def _frame(self) -> Frame:
        return self._page.frames[1]

    async def _settle(self) -> None:
        before, now = None, await self._seen()
        while now != before:
            await asyncio.sleep(OFTEN)
            before, now = now, await self._seen()

    async def _seen(self) -> str:
        return without_figures([in_turn(await self.did()), await self.text()])

    async def _mcp(self, method: str, params: str) -> str:
        try:
            return json.dumps(await self._asked(method, json.loads(params)))
        except Exception as error:
            self.failures.append(f"{method} {params}: {error}")
            raise

    async def _asked(self, method: str, params: Json) -> Json:
        if method == "tools/call":
            return dumped(await self._client.call_tool_mcp(params["name"], params.get("arguments") or {}))
        if method == "resources/read":
            return dumped(await self._client.read_resource_mcp(params["uri"]))
        return {"resources": [dumped(resource) for resource in await self._client.list_resources()]}


def dumped(model: Any) -> Json:
    fields: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return fields


def page_of(tool: Any) -> str | None:
    uri: str | None = (tool.meta or {}).get("ui", {}).get("resourceUri")
    return uri


def without_figures(value: Any) -> str:
    """The clock, and what is random."""
    return re.sub(r"\d+", "0", json.dumps(value))


def shown(text: str) -> str:
    """What a page says; an answer that comes when it was told to stop shows its time all the same."""
    return without_figures(text).replace("Stopped", "0:0:0")


def without_key(did: list[Any], key: str) -> list[Any]:
    """What a page did, with the names that its host was asked for as its server has them; all carry its key."""
    for method, params in did:
        if method == "tools/call":
            assert params["name"].startswith(f"{key}:")
            params["name"] = params["name"].removeprefix(f"{key}:")
    return did


def in_turn(did: list[Any]) -> list[str]:
    """What a page did, one thing after the other; some ask again and again."""
    return [thing for thing, _ in itertools.groupby(map(without_figures, did))]


@pytest.mark.parametrize("key", KEYS)
async def test_every_button_does_what_it_does_without_the_aggregator(
    key: str, chromium: Browser, host: Path, hub: Client[Any]
) -> None:
    listed = {tool.name: tool for tool in await hub.list_tools()}
    command = entry(key)
    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(
            Client(StdioTransport(command["command"], command["args"]), mode="legacy")
        )
        tool = next(tool for tool in await direct.list_tools() if page_of(tool))
        pages = [await stack.enter_async_context(await chromium.new_page()) for _ in range(2)]
        alone, behind = Shown(direct, pages[0]), Shown(hub, pages[1])
        await alone.show(host, tool)
        await behind.show(host, listed[f"{key}:{tool.name}"])
        assert await behind.press_all() == await alone.press_all()
        assert in_turn(without_key(await behind.did(), key)) == in_turn(await alone.did())
        assert shown(await behind.text()) == shown(await alone.text())
        assert behind.failures == alone.failures


async def test_the_pages_have_names_in_common_and_use_them(chromium: Browser, host: Path, hub: Client[Any]) -> None:
    owners = [tool.name.partition(":")[0] for tool in await hub.list_tools() if tool.name.endswith(":get-time")]
    assert len(owners) == 4
    async with await chromium.new_page() as page:
        shown = Shown(hub, page)
        await shown.show(host, next(tool for tool in await hub.list_tools() if tool.name == f"{owners[0]}:get-time"))
        await shown.press_all()
        assert ["tools/call", f"{owners[0]}:get-time"] in [[m, p.get("name")] for m, p in await shown.did()]
