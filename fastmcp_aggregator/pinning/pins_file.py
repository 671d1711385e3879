"""The pins file, which has the approved definitions. It is meant to be read, and kept with the config."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.config.documents import Location, read_json
from fastmcp_aggregator.config.fields import kind_of
from fastmcp_aggregator.files.atomic import PUBLIC, require_no_link_to_nothing, write_whole
from fastmcp_aggregator.files.locked import locked
from fastmcp_aggregator.pinning.definitions import Pinned, ServerPins, pinned

logger = logging.getLogger(__name__)

_FORMAT = 2
"""Earlier files have no number. They record of tools what was looked at then, and nothing else but instructions."""
_WRITTEN_BY = "as `fastmcp-aggregator pin` writes it"


def read_pins(path: Path) -> dict[str, ServerPins]:
    """Read the pins by server key. Raises ConfigError: with every problem that was found."""
    root = Location(str(path))
    document = read_json(path, root, takes_half_pairs=True)
    root.raise_problems()
    is_old = isinstance(document, Mapping) and "format" not in document
    pins = _servers(document, root, (Kind.TOOL,) if is_old else tuple(SPECS))
    root.raise_problems()
    if is_old:
        logger.warning(
            "%s is of an older format, which does not record all of a tool, and no prompts, resources and templates: "
            "what it does not record counts as not approved; look at it with `fastmcp-aggregator pin CONFIG --diff`, "
            "and renew the file with `fastmcp-aggregator pin CONFIG --approve`",
            path,
        )
    return pins


def add_pins(path: Path, pins: Mapping[str, ServerPins]) -> None:
    """Put these servers' pins into the file. No change of another process is lost meanwhile.

    Raises:
        ConfigError: as when it is read.
        AggregatorError: it cannot be written; the file is as it was.
    """
    require_no_link_to_nothing(path)
    with locked(path):
        write_pins(path, {**(read_pins(path) if path.exists() else {}), **pins})


def write_pins(path: Path, pins: Mapping[str, ServerPins]) -> None:
    """Replace the file. What is not ASCII is written as its escape, so that nothing in it is invisible.

    Raises:
        AggregatorError: it cannot be written; the file is as it was.
    """
    document = {"format": _FORMAT, "servers": {key: _entry(server) for key, server in pins.items()}}
    write_whole(path, json.dumps(document, indent=2) + "\n", mode=PUBLIC)


def _entry(server: ServerPins) -> dict[str, Any]:
    return {
        "instructions": None if server.instructions is None else _pin(server.instructions),
        **{kind.value: {name: _pin(pin) for name, pin in server.of(kind).items()} for kind in SPECS},
    }


def _pin(pin: Pinned) -> dict[str, Any]:
    return {"sha256": pin.sha256, "definition": dict(pin.definition)}


def _servers(document: object, root: Location, kinds: Sequence[Kind]) -> dict[str, ServerPins]:
    if isinstance(document, Mapping) and document.get("format", _FORMAT) != _FORMAT:
        root.at("format").report(f"is not one that this version knows, which is {_FORMAT}; update the program")
        return {}
    servers = document.get("servers") if isinstance(document, Mapping) else None
    if not isinstance(servers, Mapping):
        root.report(f"must be an object with `servers`, {_WRITTEN_BY}")
        return {}
    location = root.at("servers")
    return {key: _server(entry, location.at(key), kinds) for key, entry in servers.items()}


def _server(entry: object, location: Location, kinds: Sequence[Kind]) -> ServerPins:
    lists = {kind: entry.get(kind.value) for kind in kinds} if isinstance(entry, Mapping) else {}
    missing = next((kind for kind in kinds if not isinstance(lists.get(kind), Mapping)), None)
    if not isinstance(entry, Mapping) or missing is not None:
        location.report(f"must be an object with `{missing or kinds[0]}`, {_WRITTEN_BY}, not {kind_of(entry)}")
        return ServerPins()
    instructions = entry.get("instructions")
    return ServerPins(
        None if instructions is None else _read_pin(instructions, location.at("instructions")),
        {
            kind: {name: _read_pin(pin, location.at(kind.value).at(name)) for name, pin in pins.items()}
            for kind, pins in lists.items()
            if isinstance(pins, Mapping) and pins
        },
    )


def _read_pin(entry: object, location: Location) -> Pinned:
    definition = entry.get("definition") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(definition, Mapping):
        location.report(f"must be an object with `sha256` and `definition`, {_WRITTEN_BY}")
        return pinned({})
    pin = pinned(definition)
    if pin.sha256 != entry.get("sha256"):
        location.report("has a digest that is not that of its definition; one of the two was changed by hand")
    return pin
