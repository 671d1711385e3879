"""Pins of tool definitions, and the difference between two definitions. Pure.

A model reads a tool's definition and obeys it, so a server that changes one later can make it do something else than
what somebody once looked at. All parts of it that a model or a person may see are pinned.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

PARTS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The parts of a tool's definition, in the order in which they are shown."""

Definition = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pinned:
    """One definition, or a server's instructions as `{"instructions": text}`. The digest decides, the rest is shown."""

    sha256: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class ServerPins:
    """What is pinned of one server."""

    instructions: Pinned | None = None
    tools: Mapping[str, Pinned] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as pinned. `tool` is None for the server's instructions."""

    server: str
    tool: str | None
    kind: Literal["changed", "new", "gone"]
    before: Definition
    after: Definition

    @property
    def what(self) -> str:
        """Its subject, for a message."""
        what = "the text of its instructions" if self.tool is None else f"the tool {self.tool!r}"
        return f"server {self.server!r}: {what}"


def pinned(definition: Definition) -> Pinned:
    """Pin a definition: compute its digest."""
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return Pinned(hashlib.sha256(text.encode()).hexdigest(), definition)


def pinned_tool(tool: Mapping[str, Any]) -> Pinned:
    """Pin a tool as its server lists it."""
    return pinned({part: tool[part] for part in PARTS if tool.get(part) is not None})


def pinned_instructions(text: str | None) -> Pinned | None:
    """Pin a server's instructions; None if it has none."""
    return pinned({"instructions": text}) if text else None


def pins_of(tools: Iterable[Mapping[str, Any]], instructions: str | None) -> ServerPins:
    """Pin everything that a server offers."""
    return ServerPins(pinned_instructions(instructions), {tool["name"]: pinned_tool(tool) for tool in tools})


def differences(server: str, before: ServerPins, after: ServerPins) -> Iterator[Difference]:
    """Compare two sets of pins: the instructions, then the tools in their present order, then those that are gone."""
    yield from _difference(server, None, before.instructions, after.instructions)
    for name in {**after.tools, **before.tools}:
        yield from _difference(server, name, before.tools.get(name), after.tools.get(name))


def _difference(server: str, tool: str | None, before: Pinned | None, after: Pinned | None) -> Iterator[Difference]:
    if before is None and after is not None:
        yield Difference(server, tool, "new", {}, after.definition)
    elif before is not None and after is None:
        yield Difference(server, tool, "gone", before.definition, {})
    elif before is not None and after is not None and before.sha256 != after.sha256:
        yield Difference(server, tool, "changed", before.definition, after.definition)


def diff(difference: Difference) -> list[str]:
    """Return the difference as lines of a unified diff, without its headers."""
    _, _, *lines = difflib.unified_diff(_lines(difference.before), _lines(difference.after), lineterm="", n=2)
    return [line for line in lines if not line.startswith("@@")]


def _lines(definition: Definition) -> list[str]:
    lines: list[str] = []
    for name, value in definition.items():
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        # Only at a newline: what else Python takes for the end of a line is part of it, and shown.
        lines += [f"{name}: {text}"] if "\n" not in text else [f"{name}:", *(f"  {line}" for line in text.split("\n"))]
    return lines
