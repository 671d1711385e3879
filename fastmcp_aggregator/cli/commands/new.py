"""`new`: the project of a new MCP server."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_json


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the server's name: a-z, 0-9 and `-`")
    parser.add_argument(
        "--lang", choices=["python", "typescript"], default="python", help="its language (default python)"
    )
    parser.add_argument("--tool", metavar="TOOL", nargs="+", action="extend", default=[], help="tools to begin with")
    parser.add_argument(
        "--resource", metavar="NAME=URI", nargs="+", action="extend", default=[], help="resources to begin with"
    )
    parser.add_argument("--prompt", metavar="PROMPT", nargs="+", action="extend", default=[], help="prompts likewise")
    parser.add_argument(
        "--hub-grade", action="store_true", help="with limits, deadlines, authentication and a graceful end of its own"
    )
    parser.add_argument("--server-version", metavar="V", default="0.1.0", help="its version (default 0.1.0)")
    parser.add_argument("--description", metavar="TEXT", default="", help="what it is for, in one line")
    parser.add_argument("--config", metavar="FILE", help="add it to this `mcpServers` file, which may be new")
    parser.add_argument("--dir", metavar="DIR", help="the folder to write (default NAME)")
    parser.add_argument(
        "--force", action="store_true", help="write into a folder that has files, over those of its own"
    )
    add_json(parser)


COMMAND = Command(
    name="new",
    summary="Write the project of a new MCP server, which runs and is tested, and add it to a config.",
    usage="new NAME [--lang python|typescript] [--tool TOOL ...] [options]",
    examples=(
        "new my-server --config mcp.json",
        "new my-server --lang typescript --tool fetch_url --tool fetch_text --resource note='notes://{name}'",
    ),
    add_arguments=_add_arguments,
    run=action("new"),
)
