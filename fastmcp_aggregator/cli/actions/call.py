"""One tool call, starting no more servers than may have the tool, and its result as text."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import fastmcp_aggregator as package
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.cli.output.report import Report
from fastmcp_aggregator.cli.parser.arguments import parse_object, split_pairs, typed_arguments
from fastmcp_aggregator.cli.running.given_files import given_text
from fastmcp_aggregator.cli.running.starting import load, load_named_groups, run_command, started
from fastmcp_aggregator.cli.terminal.console import counted, put_as_it_is, put_json
from fastmcp_aggregator.cli.terminal.exits import FAILED, FINE, UsageError
from fastmcp_aggregator.config import McpConfig
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.naming.rules import CLIENT_RULES, loose
from fastmcp_aggregator.naming.suggestions import closest
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.version import PROGRAM

ArgumentsOf = Callable[[Mapping[str, Any]], dict[str, Any]]
"""From a tool's input schema to the arguments of the call."""

_LIMITS = {client.profile.limit for client in CLIENT_RULES}
"""The lengths of names that are shortened for some client."""
_HASH = 9
"""Characters of the hash, and the `_` before it, at its end."""


def run(options: argparse.Namespace) -> int:
    config, settings = load(options)
    load_named_groups(options, config, settings)
    arguments_of = _given_arguments(options)
    fitting = _fitting(config, options.tool, prefix=settings.prefix)
    work = _call(fitting, settings, options.tool, arguments_of, as_json=options.json)
    return run_command(work)


def _given_arguments(options: argparse.Namespace) -> ArgumentsOf:
    texts = split_pairs(options.pairs)
    if options.args is None:
        return lambda input_schema: typed_arguments(texts, input_schema)
    if texts:
        raise UsageError("give the arguments as key=value or with --args, not both")
    arguments = parse_object(*_args_text(options.args))
    return lambda _: arguments


def _args_text(given: str) -> tuple[str, str]:
    """The text of `--args`, and where it comes from."""
    if given == "-":
        return sys.stdin.read(), "stdin"
    if not given.startswith("@"):
        return given, "--args"
    return given_text(given[1:], given[1:]), given[1:]


def _fitting(config: McpConfig, name: str, *, prefix: bool) -> McpConfig:
    """The same config with only the servers that the name may belong to."""
    if not prefix:
        return config
    key, mark, _ = name.partition(":")
    fitting = [key] if mark and key in config.servers else [k for k in config.servers if _may_own(k, name)]
    if not fitting:
        raise UsageError(_unknown_server(name, config.servers))
    return McpConfig({k: config.servers[k] for k in fitting}, config.source)


def _may_own(server_key: str, name: str) -> bool:
    """True if some spelling of a tool of this server may be the name; also one in which the key was shortened."""
    owner, wanted = loose(server_key) + "_", loose(name)
    return wanted.startswith(owner) or (len(name) in _LIMITS and owner.startswith(wanted[:-_HASH]))


def _unknown_server(name: str, keys: Iterable[str]) -> str:
    known = list(keys)
    if name in known:
        return f"{name!r} is a server: name one of its tools, as {name}:TOOL. `{PROGRAM} list CONFIG` shows them"
    similar = closest(re.split(r":|__|\.", name)[0], known)
    advice = f"Did you mean: {', '.join(similar)}?" if similar else f"The servers are: {', '.join(known)}."
    return f"the name {name!r} begins with the key of no server in the config\n{advice}"


async def _call(
    config: McpConfig, settings: AggregatorSettings, name: str, arguments_of: ArgumentsOf, *, as_json: bool
) -> int:
    async with started(config, settings) as (app, report):
        result = await _call_tool(app, name, arguments_of(_input_schema(app, name)), report)
        report.close()
        if as_json:
            put_json(result)
        elif text := readable(result):
            put_as_it_is(text)
    return FAILED if result.get("isError") is True else FINE


def _input_schema(app: package.Aggregator, name: str) -> Mapping[str, Any]:
    """The input schema of the tool of this name; empty if there is none, which its call will then tell."""
    route = app.routes.find(Kind.TOOL, name)
    schema = route.component.get("inputSchema") if route else None
    return schema if isinstance(schema, dict) else {}


async def _call_tool(app: package.Aggregator, name: str, arguments: dict[str, Any], report: Report) -> dict[str, Any]:
    """The result of `tools/call`, by an ordinary client in memory, with everything that the server has put into it.

    Raises:
        AggregatorError: the call came back with an error.
    """
    # Not before the start: FastMCP takes a second, in which the children start.
    from fastmcp import Client  # noqa: PLC0415
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415
    from mcp_types import CallToolRequest, CallToolRequestParams  # noqa: PLC0415
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        report.doing(f"calling {name}: {share}{f', {message}' if message else ''}")

    report.doing(f"calling {name}")
    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    async with Client(app, mode="legacy") as client:
        try:
            any_object = TypeAdapter(dict[str, Any])
            result: dict[str, Any] = await client.session.send_request(
                request, any_object, progress_callback=on_progress
            )
        except MCPError as error:
            # Further lines are indented, so that none of them looks like one of ours.
            message = error.message.replace("\n", "\n  ")
            raise AggregatorError(f"error {error.code}: {message}") from error
        except ValidationError as error:
            what = f"the server answered {name} with no valid tool result ({error.error_count()} faults)"
            raise AggregatorError(f"{what}; that is to be mended in the server") from error
    return result


def readable(result: Mapping[str, Any]) -> str:
    """The result of a tool, for people; `structuredContent` only if there is nothing else."""
    content = result.get("content")
    if isinstance(content, list) and content:
        return "\n".join(_block(block) for block in content)
    if "structuredContent" in result:
        return json.dumps(result["structuredContent"], indent=2, ensure_ascii=False)
    return ""


def _block(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return f"[{kind} {block.get('mimeType', 'of unknown type')}, {counted(_decoded_size(data), 'byte')}]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[resource link {uri}]"
        case {"type": "resource", "resource": {"uri": str(uri)} as resource}:
            return f"[resource {uri}, {_size_of(resource)}]"
        case {"type": str(kind)}:
            return f"[{kind}]"
        case _:
            return "[unknown content]"


def _size_of(resource: Mapping[str, Any]) -> str:
    if isinstance(text := resource.get("text"), str):
        return counted(len(text), "character")
    if isinstance(blob := resource.get("blob"), str):
        return counted(_decoded_size(blob), "byte")
    return "empty"


def _decoded_size(data: str) -> int:
    """The number of bytes that a base64 text stands for (RFC 4648, section 4)."""
    return len(data.rstrip("=\n")) * 3 // 4
