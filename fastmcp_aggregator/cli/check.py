"""`check`: is the config right, and what do clients make of its names? With `--connect`, of all names in use."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

import fastmcp_aggregator as package
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.cli.clients import ClientGroup, client_groups, notes, pattern, plain_name
from fastmcp_aggregator.cli.exits import FAILED, FINE, SERVER_FAILED
from fastmcp_aggregator.cli.output import counted, printable, put
from fastmcp_aggregator.cli.progress import brief_report, is_running, line_of, summary_of
from fastmcp_aggregator.cli.starting import interruptible, load, run_to_end, started, tolerant
from fastmcp_aggregator.config import McpConfig, StdioServer
from fastmcp_aggregator.settings import AggregatorSettings


def run(options: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    config, settings = load(options)
    groups = client_groups(separator=settings.separator, prefix=settings.prefix)
    put(_lines([*_servers(config), "", *_names(config, groups)]))
    if not options.connect:
        return FINE
    return run_to_end(interruptible(_connect(config, settings, groups)), code_when_told_to_end=FAILED)


def _servers(config: McpConfig) -> Iterator[str]:
    yield f"{config.source}: {counted(len(config.servers), 'server')}"
    width = max((len(key) for key in config.servers), default=0)
    for key, server in config.servers.items():
        kind = "stdio" if isinstance(server, StdioServer) else server.transport
        yield f"  {key:{width}}  {kind:5}  {server.label}"


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


async def _connect(config: McpConfig, settings: AggregatorSettings, groups: Sequence[ClientGroup]) -> int:
    async with started(config, tolerant(settings), brief_report(config.servers)) as app:
        statuses = list(app.health().values())
        conflicts = _conflicts(app, groups)
        sections = [
            [summary_of(statuses), *(f"  {line_of(status)}" for status in statuses if not is_running(status))],
            _section("Name conflicts:", [f"  {conflict}" for conflict in conflicts]),
            _section("Names that some clients see changed:", list(_changes(app, groups))),
        ]
    put(_lines(line for section in sections if section for line in ["", *section]))
    is_fine = not conflicts and all(map(is_running, statuses))
    return FINE if is_fine or not settings.strict else SERVER_FAILED


def _conflicts(app: package.Aggregator, groups: Sequence[ClientGroup]) -> list[str]:
    found = (str(conflict) for group in groups for conflict in app.routes.conflicts(group.rule))
    return list(dict.fromkeys(found))


def _changes(app: package.Aggregator, groups: Sequence[ClientGroup]) -> Iterator[str]:
    """Each name of which some client sees more changed than the separator, and what it sees."""
    routes = [route for kind in (Kind.TOOL, Kind.PROMPT) for route in app.routes.served(kind)]
    names = dict.fromkeys((route.child.key, route.original) for route in routes)
    for key, original in names:
        seen: dict[str, list[str]] = {}
        for group in groups:
            name = group.rule.public_name(key, original)
            if name != plain_name(group.rule, key, original):
                seen.setdefault(name, []).extend(group.labels)
        if seen:
            yield f"  {key}:{original}"
            yield from (f"    {name}  {', '.join(labels)}" for name, labels in seen.items())


def _section(heading: str, lines: Sequence[str]) -> list[str]:
    return [heading, *lines] if lines else []


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(printable(line.rstrip()) for line in lines)
