"""Prints the tables in docs/real-servers.md: `PYTHONPATH=tests python tests/real/print_table.py`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from install_servers import CLIENTS, SERVERS
from real_programs import SPOKEN
from real_servers import make_place, server_entries

from fastmcp_aggregator import ServerStatus, build_aggregator

SERVER_HEADINGS = ("server", "version", "protocol version", "tools", "resources", "templates", "prompts")
CLIENT_HEADINGS = ("client", "version", "protocol versions")


async def servers_table(folder: Path) -> str:
    """What each server offers: one row for each package. The servers get `folder`, an empty one, to work in."""
    entries = server_entries(make_place(folder), folder)
    once = {key: entry for key, entry in entries.items() if not key.endswith("-other")}
    async with build_aggregator({"mcpServers": once}) as hub:
        return _table(SERVER_HEADINGS, "|---|---|---|" + "---:|" * 4, _server_rows(hub.health()))


def clients_table() -> str:
    """What each client speaks, which the tests compare with what it does speak."""
    versions = {**CLIENTS["node"], **CLIENTS["python"]}
    rows = ((f"`{package}`", versions[package], ", ".join(spoken)) for package, spoken in SPOKEN.items())
    return _table(CLIENT_HEADINGS, "|---|---|---|", rows)


def _server_rows(health: dict[str, ServerStatus]) -> Iterator[Iterable[object]]:
    for package, version in {**SERVERS["python"], **SERVERS["node"]}.items():
        if "server-" not in package:  # a library that a server of these tests is made with
            continue
        status = health[package.partition("server-")[2]]
        counts = (status.tools, status.resources, status.templates, status.prompts)
        yield f"`{package}`", version, status.protocol_version, *counts


def _table(headings: Iterable[str], rule: str, rows: Iterable[Iterable[object]]) -> str:
    lines = (f"| {' | '.join(map(str, cells))} |" for cells in (headings, *rows))
    return "\n".join([next(lines), rule, *lines])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(servers_table(Path(folder))), clients_table(), sep="\n\n")
