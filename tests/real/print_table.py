"""Prints what the servers offer, as the table in docs/real-servers.md: `python tests/real/print_table.py`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from install_servers import NODE_PINS, PYTHON_PINS
from real_servers import make_place, server_entries

from fastmcp_aggregator import ServerStatus, build_aggregator

HEADINGS = ("server", "version", "protocol version", "tools", "resources", "templates", "prompts")


async def table(folder: Path) -> str:
    """A Markdown table with one row for each package. The servers get `folder`, an empty one, to work in."""
    entries = server_entries(make_place(folder), folder)
    once = {key: entry for key, entry in entries.items() if not key.endswith("-other")}
    async with build_aggregator({"mcpServers": once}) as hub:
        return "\n".join(_lines(hub.health()))


def _lines(health: dict[str, ServerStatus]) -> Iterator[str]:
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|---|---|---|" + "---:|" * 4
    for package, version in {**PYTHON_PINS, **NODE_PINS}.items():
        status = health[package.partition("server-")[2]]
        counts = (status.tools, status.resources, status.templates, status.prompts)
        cells = (f"`{package}`", version, status.protocol_version, *counts)
        yield f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(table(Path(folder))))
