"""Pins of the definitions of components, and the difference between two definitions. Pure.

A model reads a definition and obeys it, so a server that changes one later can make it do something else than what
somebody once looked at. All of it is pinned, also what no specification knows: some client may read it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind

_SHOWN_FIRST = ("name", "uri", "uriTemplate", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The parts of a definition that are shown before the others."""
NOUNS = {Kind.TOOL: "tool", Kind.RESOURCE: "resource", Kind.TEMPLATE: "template", Kind.PROMPT: "prompt"}

Definition = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pinned:
    """One definition, or a server's instructions as `{"instructions": text}`. The digest decides, the rest is shown."""

    sha256: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class ServerPins:
    """The pins of one server: components by kind and id."""

    instructions: Pinned | None = None
    components: Mapping[Kind, Mapping[str, Pinned]] = field(default_factory=dict)

    def of(self, kind: Kind) -> Mapping[str, Pinned]:
        return self.components.get(kind, {})

    @property
    def sha256(self) -> str:
        """The digest of all of it."""
        found = [[kind, name, pin.sha256] for kind in SPECS for name, pin in sorted(self.of(kind).items())]
        whole = [None if self.instructions is None else self.instructions.sha256, found]
        return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as pinned; without a component, the server's instructions."""

    server: str
    component: tuple[Kind, str] | None
    kind: Literal["changed", "new", "gone"]
    before: Definition
    after: Definition

    @property
    def what(self) -> str:
        """Its subject, for a message."""
        return f"server {self.server!r}: {self.subject}"

    @property
    def subject(self) -> str:
        """The subject without its server."""
        if self.component is None:
            return "the text of its instructions"
        kind, name = self.component
        return f"the {NOUNS[kind]} {name!r}"


def pinned(definition: Definition) -> Pinned:
    """Pin a definition: compute its digest."""
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return Pinned(hashlib.sha256(text.encode()).hexdigest(), definition)


def pinned_instructions(text: str | None) -> Pinned | None:
    """Pin a server's instructions; None if it has none."""
    return pinned({"instructions": text}) if text else None


def pins_of(components: Mapping[Kind, Iterable[Definition]], instructions: str | None) -> ServerPins:
    """Pin everything that a server offers, as it lists it."""
    found = {kind: {item[SPECS[kind].id_field]: pinned(item) for item in components.get(kind, ())} for kind in SPECS}
    return ServerPins(pinned_instructions(instructions), {kind: pins for kind, pins in found.items() if pins})


def differences(server: str, before: ServerPins, after: ServerPins) -> Iterator[Difference]:
    """Compare two sets of pins: the instructions, then the components in their present order, then those gone."""
    yield from _difference(server, None, before.instructions, after.instructions)
    for kind in SPECS:
        for name in {**after.of(kind), **before.of(kind)}:
            yield from _difference(server, (kind, name), before.of(kind).get(name), after.of(kind).get(name))


def _difference(
    server: str, what: tuple[Kind, str] | None, before: Pinned | None, after: Pinned | None
) -> Iterator[Difference]:
    if before is None and after is not None:
        yield Difference(server, what, "new", {}, after.definition)
    elif before is not None and after is None:
        yield Difference(server, what, "gone", before.definition, {})
    elif before is not None and after is not None and before.sha256 != after.sha256:
        yield Difference(server, what, "changed", before.definition, after.definition)


def diff(difference: Difference) -> list[str]:
    """Return the difference as lines of a unified diff, without its headers."""
    _, _, *lines = difflib.unified_diff(_lines(difference.before), _lines(difference.after), lineterm="", n=2)
    return [line for line in lines if not line.startswith("@@")]


def _lines(definition: Definition) -> list[str]:
    lines: list[str] = []
    first = [name for name in _SHOWN_FIRST if name in definition]
    for name in (*first, *sorted(definition.keys() - {*first})):
        value = definition[name]
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        # Only at a newline: what else Python takes for the end of a line is part of it, and shown.
        lines += [f"{name}: {text}"] if "\n" not in text else [f"{name}:", *(f"  {line}" for line in text.split("\n"))]
    return lines
