"""Enforcement of pins: warnings about what differs from them, and the filter that leaves it out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from fastmcp_aggregator.catalogue.snapshot import SPECS, Catalogue, Kind
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.naming.uris import plain_uri
from fastmcp_aggregator.pinning.definitions import (
    NOUNS,
    Definition,
    Difference,
    ServerPins,
    differences,
    pinned,
    pinned_instructions,
    pins_of,
)
from fastmcp_aggregator.pinning.invisible import hidden_in, named
from fastmcp_aggregator.pinning.pins_file import add_pins, read_pins
from fastmcp_aggregator.settings.model import AggregatorSettings

logger = logging.getLogger(__name__)

Components = Mapping[Kind, Iterable[Definition]]

_MOST_WARNINGS = 20
"""Warnings of each kind about a server's lists: to look for more, and to log them, would cost the others."""
_HAS = {"changed": "is not as pinned", "new": "is not pinned", "gone": "is pinned, and not offered any more"}


class Pins:
    """The pins of all servers. `blocks`: what differs from them is left out, and not only warned about."""

    def __init__(self, servers: Mapping[str, ServerPins], *, blocks: bool, path: Path | None = None) -> None:
        """`path` is the file that they are from."""
        self._servers = dict(servers)
        self._blocks = blocks
        self._path = path
        self._offered: dict[str, ServerPins] = {}
        self._warned: dict[str, list[str]] = {}
        """The warnings logged for each server's last lists."""

    def is_blocked(self, server_key: str, kind: Kind, component: Definition) -> bool:
        """True if a component, as its server lists it, is to be left out."""
        if not self._blocks:
            return False
        pin = self._of(server_key).of(kind).get(component[SPECS[kind].id_field])
        return pin is None or pin.sha256 != pinned(component).sha256

    def are_instructions_blocked(self, server_key: str, text: str | None) -> bool:
        found = pinned_instructions(text)
        return self._blocks and found is not None and found != self._of(server_key).instructions

    def warnings(self, server_key: str, components: Components, instructions: str | None) -> list[str]:
        """The first warnings about what a server offers now: differences from its pins, and invisible characters."""
        offered = pins_of(components, instructions)
        found = sorted(differences(server_key, self._of(server_key), offered), key=lambda each: each.kind != "changed")
        return [
            *_first(server_key, map(self._told, found)),
            *_first(server_key, hidden_characters(server_key, offered)),
        ]

    def filtered(self, server_key: str, catalogue: Catalogue) -> Catalogue:
        """Return the catalogue without what is blocked; log what is not as it was pinned."""
        self._offered[server_key] = pins_of(catalogue.components, catalogue.instructions)
        warnings = self.warnings(server_key, catalogue.components, catalogue.instructions)
        for warning in warnings:
            if warning not in self._warned.get(server_key, ()):
                logger.warning("%s", warning)
        self._warned[server_key] = warnings
        if not self._blocks:
            return catalogue
        kept, withheld = {}, set(catalogue.withheld or ())
        for kind, items in catalogue.components.items():
            id_field = SPECS[kind].id_field
            blocked = {item[id_field] for item in items if self.is_blocked(server_key, kind, item)}
            kept[kind] = tuple(item for item in items if item[id_field] not in blocked)
            if kind in (Kind.RESOURCE, Kind.TEMPLATE):
                withheld |= blocked | set(map(plain_uri, blocked))
        is_blocked = self.are_instructions_blocked(server_key, catalogue.instructions)
        return replace(
            catalogue,
            components=kept,
            instructions=None if is_blocked else catalogue.instructions,
            withheld=None if server_key not in self._servers or catalogue.withheld is None else frozenset(withheld),
        )

    def differences(self) -> list[Difference]:
        """The differences between the last lists and the pins, by server."""
        return [each for key, offered in self._offered.items() for each in differences(key, self._of(key), offered)]

    def offers(self) -> dict[str, str]:
        """The digest of what each server has listed last."""
        return {key: offered.sha256 for key, offered in self._offered.items()}

    def approve(self, server_key: str, looked_at: str | None = None) -> None:
        """Pin what a server has listed last, here and in the file; only if its digest is that of what was looked at.

        Raises:
            AggregatorError: it has not been listed yet, offers something else by now, or the file cannot be written.
        """
        if server_key not in self._offered or self._path is None:
            raise AggregatorError(f"the server {server_key!r} has not been listed yet")
        offered = self._offered[server_key]
        if looked_at is not None and looked_at != offered.sha256:
            raise AggregatorError(f"the server {server_key!r} offers something else by now; look at it again")
        add_pins(self._path, {server_key: offered})
        self._servers[server_key] = offered

    def _told(self, difference: Difference) -> str:
        effect = ", and is left out" if self._blocks and difference.kind != "gone" else ""
        return f"{difference.what} {_HAS[difference.kind]}{effect}; see `fastmcp-aggregator pin CONFIG --diff`"

    def _of(self, server_key: str) -> ServerPins:
        return self._servers.get(server_key, ServerPins())


def _first(server_key: str, warnings: Iterable[str]) -> list[str]:
    told = list(islice(warnings, _MOST_WARNINGS + 1))
    if len(told) > _MOST_WARNINGS:
        told[-1] = f"server {server_key!r}: there are more; see `fastmcp-aggregator pin CONFIG --diff`"
    return told


def hidden_characters(server_key: str, offered: ServerPins) -> Iterator[str]:
    """Warn of the invisible characters in a server's definitions."""
    all_pins = {
        f"{NOUNS[kind]} {name!r}": pin for kind, pins in offered.components.items() for name, pin in pins.items()
    }
    if offered.instructions is not None:
        all_pins["instructions"] = offered.instructions
    for what, pin in all_pins.items():
        for part, characters in hidden_in(pin.definition).items():
            yield f"server {server_key!r}, {what}: its {part} has invisible characters: {named(characters)}"


def pins_from_settings(settings: AggregatorSettings) -> Pins | None:
    """Read the pins that the settings name; None if they name no file.

    Raises:
        ConfigError: their file cannot be used; with every problem of it.
    """
    if settings.pins is None:
        return None
    path = Path(settings.pins).expanduser()
    return Pins(read_pins(path), blocks=settings.on_pin_mismatch == "block", path=path)
