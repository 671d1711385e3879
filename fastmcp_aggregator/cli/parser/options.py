"""What all commands share in the grammar of the command line: names, summaries, examples, options."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.terminal.exits import EXPLAINED
from fastmcp_aggregator.version import VERSION

PROGRAM = "fastmcp-aggregator"

SUMMARIES = {
    "serve": "Serve all MCP servers of an `mcpServers` file as one MCP server.",
    "check": "Check a config and all that it needs, and show what clients make of its names.",
    "list": "Start the servers of a config and list what they offer.",
    "call": "Call one tool, and print what it answers.",
    "status": "Show how the servers of a running HTTP instance are.",
    "import": "Find the servers that your MCP clients have, and write them as one config.",
    "install": "Put the aggregator into the config of an MCP client.",
    "uninstall": "Take the aggregator out of the config of an MCP client.",
    "keys": "Make, list and revoke the API keys that let callers in over HTTP.",
    "pin": "Record the tool definitions of all servers, and show or approve what has changed since.",
    "login": "Log in to a remote server that asks for OAuth, in a browser.",
    "new": "Write the project of a new MCP server, which runs and is tested, and add it to a config.",
    "completion": "Print a script that completes command lines in your shell.",
}
_EXAMPLES = {
    "serve": ["mcp.json --no-strict", "mcp.json --transport http --port 8000 --groups group.json"],
    "check": ["mcp.json", "mcp.json --connect", "mcp.json --json"],
    "list": ["mcp.json", "mcp.json --json | jq '.servers.time.tools[].name'"],
    "call": ["mcp.json time:get_current_time timezone=Europe/Paris", "mcp.json files:write --args @arguments.json"],
    "status": ["--watch", "https://hub.example.com --json"],
    "import": [
        "",
        "--output mcp.json --secrets-as-variables --env-file mcp.env",
        "--from cursor --from codex --output mcp.json --rename",
        "claude_desktop_config.json --output mcp.json",
    ],
    "install": ["claude-desktop --config mcp.json", "cursor --config mcp.json --env-file mcp.env --yes"],
    "uninstall": ["claude-desktop"],
    "keys": ["create alice --file keys.json --groups web --days 90", "list --file keys.json --json"],
    "pin": ["mcp.json --file pins.json", "mcp.json --file pins.json --diff"],
    "login": ["mcp.json docs"],
    "new": [
        "my-server --config mcp.json",
        "my-server --lang typescript --tool fetch_url --tool fetch_text --resource note='notes://{name}'",
    ],
    "completion": ["bash > ~/.local/share/bash-completion/completions/fastmcp-aggregator"],
}


def new_parser(command: str, usage: str | None = None, epilog: str = EXPLAINED) -> argparse.ArgumentParser:
    """The parser of a command, with what each has."""
    first = PROGRAM if command == "serve" else f"{PROGRAM} {command}"
    examples = "\n".join(f"  {first} {example}".rstrip() for example in _EXAMPLES[command])
    parser = argparse.ArgumentParser(
        prog=first,
        usage=usage,
        description=SUMMARIES[command],
        epilog=f"examples:\n{examples}\n\n{epilog}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
    return parser


def add_debug(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", action="store_true", help="log more, and show tracebacks")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--settings", metavar="FILE", help="settings file, TOML or JSON")
    add_debug(parser)


def add_json(parser: argparse.ArgumentParser, what: str = "as JSON, for programs") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="the `mcpServers` file")
    add_environment(parser)


def add_environment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env-file", metavar="FILE", help="more environment variables: NAME=VALUE in each line")


def add_shared(parser: argparse.ArgumentParser) -> None:
    add_settings(parser)
    parser.add_argument("--groups", metavar="FILE", help="groups file: named subsets of servers and tools")
    parser.add_argument(
        "--separator",
        choices=["auto", ":", "__", ".", "_"],
        help="between server key and name (default auto: `:`, or `__` for clients that refuse it)",
    )
    parser.add_argument(
        "--no-prefix", dest="prefix", action="store_const", const=False, help="names without the server key"
    )
    parser.add_argument(
        "--tool-search",
        dest="tool_search",
        action="store_const",
        const=True,
        help="clients see search_tools and call_tool instead of all tools",
    )
    parser.add_argument(
        "--no-strict", dest="strict", action="store_const", const=False, help="go on without servers that fail"
    )
