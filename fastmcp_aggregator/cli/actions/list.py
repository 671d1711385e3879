"""The components of every server of a config: a tree for people, JSON for programs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fastmcp_aggregator as package
from fastmcp_aggregator.catalogue.snapshot import SPECS, Kind
from fastmcp_aggregator.cli.output.report import is_running, why_failed
from fastmcp_aggregator.cli.running.starting import load, load_named_groups, run_command, started, tolerant
from fastmcp_aggregator.cli.terminal.console import put, put_json, say
from fastmcp_aggregator.cli.terminal.exits import FINE, SERVER_FAILED
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.doctor.examination import FROM_CLIENTS
from fastmcp_aggregator.escaping import printable
from fastmcp_aggregator.naming.rules import rule_for
from fastmcp_aggregator.protocol.json_rpc import json_size
from fastmcp_aggregator.settings.model import AggregatorSettings

if TYPE_CHECKING:
    from rich.tree import Tree

_BYTES_A_TOKEN = 4
_WORTH_TELLING = 4000
"""Bytes of a list above which tool search saves much."""
_TITLES = {
    Kind.TOOL: "tools",
    Kind.RESOURCE: "resources",
    Kind.TEMPLATE: "resource templates",
    Kind.PROMPT: "prompts",
}


def run(options: argparse.Namespace) -> int:
    config, settings = load(options)
    load_named_groups(options, config, settings)
    work = _list(config, settings, as_json=options.json)
    return run_command(work)


async def _list(config: McpConfig, settings: AggregatorSettings, *, as_json: bool) -> int:
    async with started(config, tolerant(settings)) as (app, report):
        servers = described(app)
        sizes = await _sizes(app)
        report.close()
        if as_json:
            put_json({"servers": servers, "toolList": sizes})
        elif not servers:
            say(f"{config.source} has no server to list; {FROM_CLIENTS}")
        else:
            put_outline([_branch(key, server) for key, server in servers.items()])
            if sizes["bytes"] > _WORTH_TELLING:
                say(_saving(app.settings, sizes))
    has_failed = any(server["error"] is not None for server in servers.values())
    return SERVER_FAILED if has_failed and settings.strict else FINE


async def _sizes(app: package.Aggregator) -> dict[str, int]:
    """The sizes of a list of all tools, and of one with a search instead, as an ordinary client gets them."""
    rule = rule_for(None, separator=app.settings.separator, prefix=app.settings.prefix)
    return {
        "bytes": json_size({"tools": app.routes.listing(Kind.TOOL, rule)}),
        "bytesWithToolSearch": await app.views.size_of_search(),
    }


def _saving(settings: AggregatorSettings, sizes: Mapping[str, int]) -> str:
    whole, search = sizes["bytes"], sizes["bytesWithToolSearch"]
    clients = "clients see" if settings.tool_search else "with --tool-search, clients see"
    return (
        f"The list of all tools: {whole} bytes, about {whole // _BYTES_A_TOKEN} tokens; {clients} {search} bytes, "
        f"about {search // _BYTES_A_TOKEN} tokens ({1 - search / whole:.0%} less). "
        f"Tokens are an estimate: {_BYTES_A_TOKEN} bytes each."
    )


def described(app: package.Aggregator) -> dict[str, dict[str, Any]]:
    """Every server by server key, with its components as an ordinary client sees them."""
    rule = rule_for(None, separator=app.settings.separator, prefix=app.settings.prefix)
    table = app.routes
    servers = {key: _server(app, key) for key in app.children}
    for kind, spec in SPECS.items():
        for component in table.listing(kind, rule):
            owner = table.find(kind, component[spec.id_field])
            if owner is not None:
                servers[owner.child.key][spec.list_key].append(component)
    return servers


def _server(app: package.Aggregator, key: str) -> dict[str, Any]:
    child = app.children[key]
    status = child.status()
    is_up = is_running(status)
    return {
        "state": "running" if is_up else "failed",
        "protocolVersion": status.protocol_version,
        "error": None if is_up else why_failed(status),
        "instructions": child.catalogue.instructions if is_up and child.catalogue else None,
        **{spec.list_key: [] for spec in SPECS.values()},
    }


def _branch(key: str, server: Mapping[str, Any]) -> Branch:
    if server["error"] is not None:
        return Branch(f"{key}: failed: {server['error']}", is_bad=True)
    return Branch(f"{key}: running ({server['protocolVersion']})", branches=list(_kinds(server)))


def _kinds(server: Mapping[str, Any]) -> Iterator[Branch]:
    for kind, spec in SPECS.items():
        components = server[spec.list_key]
        if components:
            below = [Branch(component[spec.id_field], _about(component)) for component in components]
            yield Branch(_TITLES[kind], branches=below)


def _about(component: Mapping[str, Any]) -> str:
    """The first line of what it says about itself."""
    for text in (component.get("description"), component.get("title")):
        if isinstance(text, str) and text.strip():
            return text.strip().splitlines()[0]
    return ""


@dataclass(frozen=True, slots=True)
class Branch:
    """A label, what is said about it, and what is below it."""

    label: str
    remark: str = ""
    branches: Sequence[Branch] = ()
    is_bad: bool = False


def put_outline(branches: Sequence[Branch]) -> None:
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - rich is for terminals only

        console = Console()
        for branch in branches:
            console.print(_tree(branch))
    elif branches:
        put("\n".join(line for branch in branches for line in _indented(branch, 0)))


def _indented(branch: Branch, depth: int) -> Iterator[str]:
    yield printable("  " * depth + "  ".join(filter(None, (branch.label, branch.remark))))
    for below in branch.branches:
        yield from _indented(below, depth + 1)


def _tree(branch: Branch) -> Tree:
    from rich.text import Text  # noqa: PLC0415 - as above
    from rich.tree import Tree  # noqa: PLC0415 - as above

    label = Text(printable(branch.label), "red" if branch.is_bad else "bold" if branch.branches else "")
    if branch.remark:
        label.append(f"  {printable(branch.remark)}", "dim")
    tree = Tree(label, guide_style="dim")
    tree.children.extend(_tree(below) for below in branch.branches)
    return tree
