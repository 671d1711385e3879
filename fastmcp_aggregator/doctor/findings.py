"""A finding: how grave it is, where it is, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fastmcp_aggregator.config import jsonc
from fastmcp_aggregator.config.documents import MAX_BYTES, Location, path_step
from fastmcp_aggregator.early.reading import read_bytes

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`path` is where in the config it is, `line` the line of the file, from 1; `written` what stands there.

    `change` is what to write there instead, if that can be said. Nothing secret is in any of them.
    """

    severity: Severity
    server: str | None
    message: str
    path: str | None = None
    line: int | None = None
    written: str | None = None
    change: str | None = None
    common: str | None = None
    """The message for several servers with the same finding, if it differs."""


class Source:
    """The text of a config, in which locations can be found again."""

    def __init__(self, path: str) -> None:
        self._lines: dict[str, int] = {}
        self.document: Any = None
        try:
            text = read_bytes(path, MAX_BYTES).decode("utf-8-sig")
            root = jsonc.parse(text)
        except (OSError, ValueError):  # its reader has reported that it cannot be read
            return
        self.document = root.value()
        line, at = 1, 0
        for location, start in _locations(root, Location()):  # in the order of the text, which is looked through once
            line, at = line + text.count("\n", at, start), start
            self._lines[location] = line

    def line(self, path: str) -> int | None:
        """The line of a location, given as a JSON path."""
        return self._lines.get(path)

    def entry(self, server_key: str) -> dict[str, Any]:
        servers = self.document.get("mcpServers") if isinstance(self.document, dict) else None
        entry = servers.get(server_key) if isinstance(servers, dict) else None
        return entry if isinstance(entry, dict) else {}

    def finding(
        self,
        severity: Severity,
        server: str,
        message: str,
        *steps: object,
        written: str | None = None,
        change: str | None = None,
        common: str | None = None,
    ) -> Finding:
        """A finding at a path in a server's entry."""
        path = "$" + "".join(map(path_step, ("mcpServers", server, *steps)))
        return Finding(severity, server, message, path, self.line(path), written, change, common)


def _locations(node: jsonc.Node, location: Location) -> Iterator[tuple[str, int]]:
    for member in node.members:
        below = location.at(member.key)
        yield below.path, member.start
        yield from _locations(member.node, below)
