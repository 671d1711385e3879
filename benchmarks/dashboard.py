"""The dashboard in Chromium: `PYTHONPATH=tests python -m benchmarks.dashboard --servers 100 --tools 20`.

It prints, in milliseconds, when something is painted first, when the table of servers is, and how long each letter in
the filter of tools takes until the list is laid out; then how many rows each list has.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from support import memory
from support.chromium import launched, served
from support.harness import config, lean

ROUNDS = 5
_SETTLE = 300
"""Milliseconds until what is to be painted is."""
TYPED = ["t", "to", "too", "tool", "tool_4", "number 7", "s server-3", ""]
_WATCH = """new MutationObserver(() => {
    if (!window.tableAt && document.querySelector("#servers-table tbody tr"))
        requestAnimationFrame(() => { window.tableAt ??= performance.now(); });
}).observe(document, {childList: true, subtree: true});"""
_PAINTS = """() => [performance.getEntriesByName("first-contentful-paint")[0].startTime, window.tableAt]"""
_TYPE = """(texts) => texts.map((text) => {
    const began = performance.now();
    const input = document.getElementById("tools-filter");
    input.value = text;
    input.dispatchEvent(new Event("input"));
    document.getElementById("tools-list").getBoundingClientRect();
    return performance.now() - began;
})"""


def tool(number: int) -> dict[str, Any]:
    """A tool with a description as most have one."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    description = f"Does what number {number} does, and says so in a line of the usual length."
    return {"name": f"tool_{number}", "description": description, "inputSchema": schema}


def measured(origin: str, servers: int, tools: int) -> dict[str, Any]:
    """What the page at this address takes, when all servers run."""
    with launched() as browser:
        page = browser.new_page()
        page.goto(origin)
        running = page.locator(f"#servers-summary:has-text('{servers} of {servers} servers running')")
        running.wait_for(timeout=300_000)
        paints = []
        for _ in range(ROUNDS):
            page.close()
            page = browser.new_page()
            page.add_init_script(_WATCH)
            page.goto(origin)
            page.locator("#servers-table tbody tr").first.wait_for()
            page.wait_for_timeout(_SETTLE)
            paints.append(page.evaluate(_PAINTS))
        page.evaluate("location.hash = 'tools'")
        page.locator(f"#tools-summary:has-text('{servers * tools} tools')").wait_for(timeout=300_000)
        typed = [page.evaluate(_TYPE, TYPED) for _ in range(ROUNDS)]
        page.evaluate("location.hash = 'groups'")
        page.locator("#groups-list .tools a").first.wait_for()
        lists = ("#servers-table tbody tr", "#tools-list a", "#tools-list .fold", "#groups-list .tools a")
        return {
            "first paint": [round(first) for first, _ in paints],
            "table of servers": [round(table) for _, table in paints],
            "a letter, longest of each round": [round(max(times), 1) for times in typed],
            "rows": {each: page.locator(each).count() for each in lists},
        }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard")
    parser.add_argument("--servers", type=int, default=100)
    parser.add_argument("--tools", type=int, default=20, help="of each server")
    options = parser.parse_args()
    offered = {"tools/list": {"tools": [tool(number) for number in range(options.tools)]}}
    document = config(**{f"server-{number}": lean(results=offered) for number in range(options.servers)})
    app = memory.build_aggregator(document, strict=False, max_tools_per_child=max(1000, options.tools))
    with served(app.http_app()) as origin:
        print(json.dumps(measured(f"{origin}/", options.servers, options.tools), indent=1))


if __name__ == "__main__":
    main()
