"""`check`: is the config right, is there what it needs, and what do clients make of its names?

With `--connect`, the servers are started, and all names in use are looked at.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import fastmcp_aggregator as package
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.cli.output.findings import described, told
from fastmcp_aggregator.cli.output.name_report import (
    ClientGroup,
    accepted_by,
    client_groups,
    notes,
    pattern,
    plain_name,
)
from fastmcp_aggregator.cli.output.progress import brief_report
from fastmcp_aggregator.cli.output.report import is_running, line_of, summary_of, why_failed
from fastmcp_aggregator.cli.running.starting import interruptible, load, run_to_end, started, tolerant
from fastmcp_aggregator.cli.terminal.console import counted, printable, put, put_json
from fastmcp_aggregator.cli.terminal.exits import CONFIGURATION, FAILED, FINE, SERVER_FAILED
from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.doctor.examination import Examination, examined
from fastmcp_aggregator.doctor.findings import Source
from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.settings.model import AggregatorSettings


def run(options: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    try:
        config, settings = load(options)
    except ConfigError as error:
        if not options.json:
            raise
        put_json({"config": options.config, "problems": _problems(error, options.config)})
        return CONFIGURATION
    groups = client_groups(separator=settings.separator, prefix=settings.prefix)
    examination = examined(config, settings)
    if not options.json:
        put(_lines([*_servers(config), "", *_names(config, groups), "", *told(examination, config.source)]))
    if not options.connect:
        if options.json:
            put_json(_document(config, groups, examination))
        return FINE
    work = _connect(config, settings, groups, examination if options.json else None)
    return run_to_end(interruptible(work), code_when_told_to_end=FAILED)


def _problems(error: ConfigError, config: str) -> list[dict[str, Any]]:
    source = Source(config)
    lines = (source.line(problem.path.removeprefix(f"{config} ")) for problem in error.details)
    return [{**asdict(problem), "line": line} for problem, line in zip(error.details, lines, strict=True)]


def _document(config: McpConfig, groups: Sequence[ClientGroup], examination: Examination) -> dict[str, Any]:
    return {
        "config": config.source,
        "servers": {key: {"transport": kind, "target": label} for key, kind, label in _targets(config)},
        "clients": [
            {
                "clients": list(group.labels),
                "accepts": accepted_by(group.rule),
                "names": {
                    key: {"pattern": pattern(group.rule, key), "why": notes(group.rule, key)} for key in config.servers
                },
            }
            for group in groups
        ],
        **described(examination),
    }


def _targets(config: McpConfig) -> Iterator[tuple[str, str, str]]:
    for key, server in config.servers.items():
        yield key, "stdio" if isinstance(server, StdioServer) else server.transport, server.label


def _servers(config: McpConfig) -> Iterator[str]:
    yield f"{config.source}: {counted(len(config.servers), 'server')}"
    width = max((len(key) for key in config.servers), default=0)
    for key, kind, label in _targets(config):
        yield f"  {key:{width}}  {kind:5}  {label}"


def _names(config: McpConfig, groups: Sequence[ClientGroup]) -> Iterator[str]:
    yield "What clients see:"
    for group in groups:
        yield f"  {group.title}"
        if not group.rule.prefix:
            yield "    <tool>"
            continue
        patterns = {key: pattern(group.rule, key) for key in config.servers}
        width = max((len(shape) for shape in patterns.values()), default=0)
        for key, shape in patterns.items():
            yield f"    {shape:{width}}  {'; '.join(notes(group.rule, key))}"


async def _connect(
    config: McpConfig,
    settings: AggregatorSettings,
    groups: Sequence[ClientGroup],
    examination: Examination | None,
) -> int:
    """With an examination, everything is one document."""
    async with started(config, tolerant(settings), brief_report(config.servers)) as app:
        statuses = list(app.health().values())
        conflicts = _conflicts(app, groups)
        changes = list(_changes(app, groups))
        strays = list(_strays(app, settings))
    if examination is not None:
        failed = {status.server_key: why_failed(status) for status in statuses if not is_running(status)}
        connected = {"failed": failed, "conflicts": conflicts, "changedNames": dict(changes), "strayTools": strays}
        put_json({**_document(config, groups, examination), "connected": connected})
    else:
        sections = [
            [summary_of(statuses), *(f"  {line_of(status)}" for status in statuses if not is_running(status))],
            _section("Name conflicts:", [f"  {conflict}" for conflict in conflicts]),
            _section("Settings for tools that no server has:", [f"  {stray}" for stray in strays]),
            _section("Names that some clients see changed:", [line for change in changes for line in _change(*change)]),
        ]
        put(_lines(line for section in sections if section for line in ["", *section]))
    is_fine = not conflicts and all(map(is_running, statuses))
    return FINE if is_fine or not settings.strict else SERVER_FAILED


def _conflicts(app: package.Aggregator, groups: Sequence[ClientGroup]) -> list[str]:
    found = (str(conflict) for group in groups for conflict in app.routes.conflicts(group.rule))
    return list(dict.fromkeys(found))


def _strays(app: package.Aggregator, settings: AggregatorSettings) -> Iterator[str]:
    """The tools that the settings show otherwise and that their server, which is up, does not have."""
    for key, changes in settings.tool_changes.items():
        child = app.children.get(key)
        if child is not None and child.catalogue is not None:
            offered = {tool["name"] for tool in child.catalogue.of(Kind.TOOL)}
            yield from (f"{key}:{name}" for name in changes if name not in offered)


def _changes(app: package.Aggregator, groups: Sequence[ClientGroup]) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Each name of which some client sees more changed than the separator, and who sees what."""
    routes = [route for kind in (Kind.TOOL, Kind.PROMPT) for route in app.routes.served(kind)]
    names = dict.fromkeys((route.child.key, route.name) for route in routes)
    for key, original in names:
        seen: dict[str, list[str]] = {}
        for group in groups:
            name = group.rule.public_name(key, original)
            if name != plain_name(group.rule, key, original):
                seen.setdefault(name, []).extend(group.labels)
        if seen:
            yield f"{key}:{original}", seen


def _change(original: str, seen: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield f"  {original}"
    yield from (f"    {name}  {', '.join(labels)}" for name, labels in seen.items())


def _section(heading: str, lines: Sequence[str]) -> list[str]:
    return [heading, *lines] if lines else []


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(printable(line.rstrip()) for line in lines)
