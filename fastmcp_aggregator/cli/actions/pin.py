"""The tool definitions of all servers, compared with the pins file and written to it."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastmcp_aggregator as package
from fastmcp_aggregator.cli.output.report import is_running, line_of, why_failed
from fastmcp_aggregator.cli.running.starting import load, run_command, started, tolerant
from fastmcp_aggregator.cli.terminal.console import counted, put_json, put_lines, say
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, SERVER_FAILED, UsageError
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.pinning.definitions import NOUNS, Difference, ServerPins, diff, differences, pins_of
from fastmcp_aggregator.pinning.pins import hidden_characters
from fastmcp_aggregator.pinning.pins_file import add_pins, read_pins
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.status.server_status import ServerStatus

PinsByKey = Mapping[str, ServerPins]

_HAS = {"changed": "has changed", "new": "is new", "gone": "is gone"}


def run(options: argparse.Namespace) -> int:
    config, settings = load(options)
    path = _path(options, settings)
    approved = None if options.approve is None else _keys(options.approve, config)
    known = {} if not options.diff and not path.exists() else read_pins(path)
    work = _pin(config, settings, path, known, approved, writes=not options.diff, as_json=options.json)
    return run_command(work)


def _path(options: argparse.Namespace, settings: AggregatorSettings) -> Path:
    file = options.file or settings.pins
    if file is None:
        raise UsageError("no pins file is given: use --file FILE, or the setting pins")
    return Path(file).expanduser()


def _keys(wanted: Collection[str], config: McpConfig) -> Collection[str]:
    unknown = [key for key in wanted if key not in config.servers]
    if unknown:
        raise UsageError(f"there is no server {unknown[0]!r}; there are: {', '.join(config.servers)}")
    return wanted or config.servers


async def _pin(
    config: McpConfig,
    settings: AggregatorSettings,
    path: Path,
    known: PinsByKey,
    approved: Collection[str] | None,
    *,
    writes: bool,
    as_json: bool,
) -> int:
    """With `writes`, servers that have no pins get them, and those in `approved` get new ones."""
    # What is served does not matter here, and the pins may not be there yet.
    # They are asked as by a hub, whose clients may have roots: some offer more then.
    unpinned = tolerant(settings).model_copy(update={"pins": None})
    async with started(config, unpinned, offers_roots=True) as (app, _):
        offered, failed = _offered(app)
    found = [entry for key, pins in offered.items() for entry in differences(key, known.get(key, ServerPins()), pins)]
    kept = {key: pins for key, pins in offered.items() if key not in known or key in (approved or ())}
    if writes and kept:
        add_pins(path, kept)
    written = {key: pins for key, pins in kept.items() if writes}
    if as_json:
        put_json(_document(found, written, failed, path))
    else:
        _tell(found, written, known, offered, failed, path)
    is_left = any(entry.server not in kept or not writes for entry in found)
    return SERVER_FAILED if failed and settings.strict else FAILED if is_left else FINE


def _offered(app: package.Aggregator) -> tuple[dict[str, ServerPins], list[ServerStatus]]:
    """The offers by server key, and the servers that failed."""
    offered, failed = {}, []
    for key, child in app.children.items():
        status = child.status()
        if is_running(status) and child.catalogue is not None:
            offered[key] = pins_of(child.catalogue.components, child.catalogue.instructions)
        else:
            failed.append(status)
    return offered, failed


def _document(found: list[Difference], kept: PinsByKey, failed: Sequence[ServerStatus], path: Path) -> dict[str, Any]:
    differences = [
        {"server": entry.server, **_named(entry), "kind": entry.kind, "diff": list(diff(entry))} for entry in found
    ]
    reasons = {status.server_key: why_failed(status) for status in failed}
    return {"pins": str(path), "differences": differences, "written": list(kept), "failed": reasons}


def _named(entry: Difference) -> dict[str, str]:
    if entry.component is None:
        return {"component": "instructions"}
    kind, name = entry.component
    return {"component": NOUNS[kind], "name": name}


def _counted(pins: ServerPins) -> str:
    """The number of pins of each kind."""
    numbers = {noun: len(pins.of(kind)) for kind, noun in NOUNS.items()}
    return ", ".join(counted(number, noun) for noun, number in numbers.items() if number or noun == "tool")


def _tell(
    found: list[Difference],
    kept: PinsByKey,
    known: PinsByKey,
    offered: PinsByKey,
    failed: Sequence[ServerStatus],
    path: Path,
) -> None:
    for status in failed:
        say(line_of(status))
    shown = [entry for entry in found if entry.server in known or not kept]
    put_lines(_lines(shown))
    for key, pins in offered.items():
        for text in hidden_characters(key, pins):
            say(f"warning: {text}")
    for key, pins in kept.items():
        say(f"{path}: {'approved' if key in known else 'pinned'} {_counted(pins)} of {key!r}")
    left = [entry for entry in shown if entry.server not in kept]
    if left:
        say(f"{counted(len(left), 'difference')}; approve with: fastmcp-aggregator pin CONFIG --approve [SERVER …]")
    elif not kept and not failed:
        say(f"{path}: everything is as pinned")


def _lines(found: list[Difference]) -> Iterator[str]:
    for entry in found:
        yield f"{entry.what} {_HAS[entry.kind]}"
        yield from (f"  {line}" for line in diff(entry))
