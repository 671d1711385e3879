"""Makes the pictures of the dashboard that the documentation has: `nox -s pictures`."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any, Literal

from demo_hub import GROUPS, servers
from playwright.sync_api import Browser, Page
from support.chromium import launched, served
from support.harness import config

from fastmcp_aggregator import build_aggregator

IMAGES = Path(__file__).parents[2] / "docs" / "images"
Theme = Literal["light", "dark"]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("git:git_status", {"path": "."}),
    ("search:search", {"query": "model context protocol"}),
    ("git:git_reset", {"path": "docs"}),
    ("calendar:list_events", {"day": "2026-11-22"}),
    ("search:fetch_page", {"url": "https://example.org"}),
    ("git:git_log", {"path": "."}),
]


def shown(page: Page, view: str, selector: str) -> None:
    page.evaluate("view => { location.hash = view; }", view)
    page.locator(selector).first.wait_for()


def picture(page: Page, name: str) -> None:
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.screenshot(path=IMAGES / f"dashboard-{name}.png")


def prepare(page: Page, hub: str) -> None:
    """Let there be something to see: calls, and a server that was restarted."""
    row = page.locator("#servers-table tr[data-item=search]")
    os.kill(int(row.locator("[data-column=Process]").inner_text()), signal.SIGKILL)
    page.locator("#servers-table tr[data-item=search]:has-text('SIGKILL')").wait_for()
    page.locator("#servers-table tr[data-item=search][data-state=running]").wait_for()
    for name, arguments in CALLS:
        page.request.post(f"{hub}/mcp/tools/call", data={"name": name, "arguments": arguments})
    page.locator("[data-calls='8'] tbody tr").nth(len(CALLS) - 1).wait_for()
    page.reload()
    page.locator("#servers-table svg.spark").first.wait_for()


def call_a_tool(page: Page) -> None:
    shown(page, "tools/coding/git%3Agit_log", "form.call")
    page.get_by_label("path").fill("src")
    page.get_by_label("max_count").fill("2")
    page.get_by_role("button", name="Call", exact=True).click()
    page.locator(".verdict").wait_for()


WIDTHS = {"desk": (1160, 980), "tablet": (768, 900), "phone": (360, 720)}
VIEWS: dict[str, tuple[Theme, Theme, Theme]] = {
    "servers": ("light", "dark", "light"),
    "groups": ("dark", "light", "dark"),
    "tools": ("dark", "light", "dark"),
}
"""Each in which theme at which width."""


def make(browser: Browser, hub: str) -> None:
    page = browser.new_page(viewport={"width": 1160, "height": 720}, color_scheme="light")
    page.goto(hub)
    page.locator("#servers-table tr[data-state=running]").first.wait_for()
    prepare(page, hub)
    open_view = {
        "servers": lambda: shown(page, "servers", "#servers-table tbody tr"),
        "groups": lambda: shown(page, "groups", "#groups-list .tools a"),
        "tools": lambda: call_a_tool(page),
    }
    for number, (width, (across, down)) in enumerate(WIDTHS.items()):
        page.set_viewport_size({"width": across, "height": down})
        for view, themes in VIEWS.items():
            page.emulate_media(color_scheme=themes[number])
            open_view[view]()
            picture(page, f"{view}-{width}")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    folder = tempfile.mkdtemp()
    app = build_aggregator(config(**servers(Path(folder) / "broken")), groups=GROUPS, strict=False, name="Team hub")
    with served(app.http_app()) as hub, launched() as browser:
        make(browser, hub)


if __name__ == "__main__":
    main()
