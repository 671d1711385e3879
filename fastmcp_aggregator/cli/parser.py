"""The grammar of the command line. Imports nothing but argparse, so that `--help` and `--version` answer at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fastmcp_aggregator.cli.exits import EXPLAINED
from fastmcp_aggregator.version import VERSION

PROGRAM = "fastmcp-aggregator"
_MOST_DAYS = 36500

_SUMMARIES = {
    "serve": "Serve all MCP servers of an `mcpServers` file as one MCP server.",
    "check": "Check a config, and show what clients make of its names. Starts nothing without --connect.",
    "list": "Start the servers of a config and list what they offer.",
    "call": "Call one tool, and print what it answers.",
    "keys": "Make, list and revoke the API keys that let callers in over HTTP.",
    "pin": "Record the tool definitions of all servers, and show or approve what has changed since.",
    "login": "Log in to a remote server that asks for OAuth, in a browser.",
}
_USAGE = f"""\
{PROGRAM} [serve] CONFIG [options]
       {PROGRAM} check CONFIG [--connect] [options]
       {PROGRAM} list CONFIG [--json] [options]
       {PROGRAM} call CONFIG SERVER:TOOL [key=value ...] [options]
       {PROGRAM} keys create|list|revoke [NAME] [options]
       {PROGRAM} pin CONFIG [--diff | --approve [SERVER ...]] [options]
       {PROGRAM} login CONFIG SERVER [options]"""
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
    if command in _CHECKS:
        _CHECKS[command](parser, options)
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
    parser.add_argument("--group", metavar="ID", help="serve this group alone, and start only its servers")
    parser.add_argument("--name", metavar="NAME", help="server name shown to clients")
    parser.add_argument("--server-version", metavar="V", help="server version shown to clients")
    parser.add_argument(
        "--otel",
        dest="telemetry",
        action="store_const",
        const=True,
        help="export traces as the OTEL_* variables say (needs the extra `otel`)",
    )
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


def _keys() -> argparse.ArgumentParser:
    parser = _parser("keys")
    parser.add_argument("action", choices=["create", "list", "revoke"], help="what to do")
    parser.add_argument("name", metavar="NAME", nargs="?", help="whose key; to revoke one of several, its id")
    parser.add_argument("--file", metavar="FILE", help="the keys file (default: the setting keys_file)")
    parser.add_argument("--groups", metavar="A,B", help="create: the groups that the owner may use (default all)")
    parser.add_argument("--days", metavar="N", type=int, help="create: days until it expires (default never)")
    _add_settings(parser)
    return parser


def _check_keys(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if (options.name is None) != (options.action == "list"):
        parser.error("`list` takes no NAME" if options.name else f"`{options.action}` needs a NAME")
    if options.action != "create" and (options.groups is not None or options.days is not None):
        parser.error("--groups and --days go with create")
    if options.days is not None and not 1 <= options.days <= _MOST_DAYS:
        parser.error(f"--days must be a number from 1 to {_MOST_DAYS}")


def _pin() -> argparse.ArgumentParser:
    parser = _parser("pin")
    parser.add_argument("config", metavar="CONFIG", help="the `mcpServers` file")
    parser.add_argument("--file", metavar="FILE", help="the pins file (default: the setting pins)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--diff", action="store_true", help="show what has changed, and write nothing")
    what.add_argument(
        "--approve", metavar="SERVER", nargs="*", help="record what these servers offer now, or all; after CONFIG"
    )
    _add_settings(parser)
    return parser


def _login() -> argparse.ArgumentParser:
    parser = _parser("login")
    parser.add_argument("config", metavar="CONFIG", help="the `mcpServers` file")
    parser.add_argument("server", metavar="SERVER", help="the server's key in it")
    parser.add_argument(
        "--port", metavar="P", type=int, help="port on which the browser comes back (default a free one)"
    )
    _add_settings(parser)
    return parser


_PARSERS = {
    "serve": _serve,
    "check": _check,
    "list": _list,
    "call": _call,
    "keys": _keys,
    "pin": _pin,
    "login": _login,
}
_CHECKS = {"serve": _check_serve, "keys": _check_keys}


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


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--settings", metavar="FILE", help="settings file, TOML or JSON")
    parser.add_argument("--debug", action="store_true", help="log more, and show tracebacks")


def _add_shared(parser: argparse.ArgumentParser) -> None:
    _add_settings(parser)
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
        "--no-strict", dest="strict", action="store_const", const=False, help="go on without servers that fail"
    )
