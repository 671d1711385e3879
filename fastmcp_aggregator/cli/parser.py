"""The grammar of the command line. Imports nothing but argparse, so that `--help` and `--version` answer at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fastmcp_aggregator.cli.exits import EXPLAINED
from fastmcp_aggregator.version import VERSION

PROGRAM = "fastmcp-aggregator"

_SUMMARIES = {
    "serve": "Serve all MCP servers of an `mcpServers` file as one MCP server.",
    "check": "Check a config, and show what clients make of its names. Starts nothing without --connect.",
    "list": "Start the servers of a config and list what they offer.",
    "call": "Call one tool, and print what it answers.",
}
_USAGE = f"""\
{PROGRAM} [serve] CONFIG [options]
       {PROGRAM} check CONFIG [--connect] [options]
       {PROGRAM} list CONFIG [--json] [options]
       {PROGRAM} call CONFIG SERVER:TOOL [key=value ...] [options]"""
_COMMANDS = f"""\
commands (`{PROGRAM} COMMAND --help` tells more; without a command, it serves):
""" + "\n".join(f"  {name:6} {summary}" for name, summary in _SUMMARIES.items())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with the name of the command in `command`.

    Raises:
        SystemExit: they cannot be understood, or ask for help or the version; what there is to say has been said.
    """
    first = arguments[0] if arguments else None
    command, rest = (first, arguments[1:]) if first in _SUMMARIES else ("serve", arguments)
    parser = _PARSERS[command]()
    options = parser.parse_intermixed_args(rest)
    if command == "serve":
        _check_serve(parser, options)
    options.command = command
    return options


def _check_serve(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.config_file is not None:
        if options.config is not None:
            parser.error("give the config once: as CONFIG or with --config")
        options.config = options.config_file
    if options.config is None:
        parser.error(f"give the path of a config file, such as: {PROGRAM} config.json")
    if options.transport == "stdio" and (options.host is not None or options.port is not None):
        parser.error("--host and --port go with --transport http")


def _serve() -> argparse.ArgumentParser:
    parser = _parser("serve", usage=_USAGE, epilog=f"{_COMMANDS}\n\n{EXPLAINED}")
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="the `mcpServers` file")
    parser.add_argument("--config", dest="config_file", metavar="FILE", help="the same, as an option")
    parser.add_argument(
        "--transport", choices=["stdio", "http"], default="stdio", help="how clients connect (default stdio)"
    )
    parser.add_argument("--host", metavar="H", help="address to serve HTTP on (default 127.0.0.1)")
    parser.add_argument("--port", metavar="P", help="port to serve HTTP on (default 8000); 0 takes a free one")
    parser.add_argument("--name", metavar="NAME", help="server name shown to clients")
    parser.add_argument("--server-version", metavar="V", help="server version shown to clients")
    _add_shared(parser)
    return parser


def _check() -> argparse.ArgumentParser:
    parser = _parser("check")
    parser.add_argument("config", metavar="CONFIG", help="the `mcpServers` file")
    parser.add_argument("--connect", action="store_true", help="start the servers, and check the names they offer")
    _add_shared(parser)
    return parser


def _list() -> argparse.ArgumentParser:
    parser = _parser("list")
    parser.add_argument("config", metavar="CONFIG", help="the `mcpServers` file")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    _add_shared(parser)
    return parser


def _call() -> argparse.ArgumentParser:
    parser = _parser("call")
    parser.add_argument("config", metavar="CONFIG", help="the `mcpServers` file")
    parser.add_argument("tool", metavar="SERVER:TOOL", help="the tool's public name, in any spelling")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        help="an argument, typed by the tool's input schema; repeat it to give a list",
    )
    parser.add_argument("--args", metavar="JSON", help="all arguments: '{…}', @FILE, or - for stdin")
    parser.add_argument("--json", action="store_true", help="the whole result as JSON")
    _add_shared(parser)
    return parser


_PARSERS = {"serve": _serve, "check": _check, "list": _list, "call": _call}


def _parser(command: str, usage: str | None = None, epilog: str = EXPLAINED) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM if command == "serve" else f"{PROGRAM} {command}",
        usage=usage,
        description=_SUMMARIES[command],
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
    return parser


def _add_shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--settings", metavar="FILE", help="settings file, TOML or JSON")
    parser.add_argument(
        "--separator",
        choices=["auto", ":", "__", ".", "_"],
        help="between server key and name (default auto: `:`, or `__` for clients that refuse it)",
    )
    parser.add_argument(
        "--no-prefix", dest="prefix", action="store_const", const=False, help="names without the server key"
    )
    parser.add_argument(
        "--no-strict", dest="strict", action="store_const", const=False, help="go on without servers that fail"
    )
    parser.add_argument("--debug", action="store_true", help="log more, and show tracebacks")
