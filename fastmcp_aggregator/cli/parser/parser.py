"""The grammar of the command line. Imports nothing but argparse, so that `--help` and `--version` answer at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fastmcp_aggregator.cli.parser import client_parsers
from fastmcp_aggregator.cli.parser.options import (
    PROGRAM,
    SUMMARIES,
    add_config,
    add_debug,
    add_environment,
    add_json,
    add_settings,
    add_shared,
    new_parser,
)
from fastmcp_aggregator.cli.terminal.exits import EXPLAINED

_USAGE = f"""\
{PROGRAM} [serve] CONFIG [options]
       {PROGRAM} check CONFIG [--connect] [options]
       {PROGRAM} list CONFIG [--json] [options]
       {PROGRAM} call CONFIG SERVER:TOOL [key=value ...] [options]
       {PROGRAM} status [URL] [--watch] [options]
       {PROGRAM} import [FILE ...] [--output FILE] [options]
       {PROGRAM} install CLIENT --config FILE [options]
       {PROGRAM} uninstall CLIENT [options]
       {PROGRAM} keys create|list|revoke [NAME] [options]
       {PROGRAM} pin CONFIG [--diff | --approve [SERVER ...]] [options]
       {PROGRAM} login CONFIG SERVER [options]
       {PROGRAM} new NAME [--lang python|typescript] [--tool TOOL ...] [options]
       {PROGRAM} completion bash|zsh|fish"""
_COMMANDS = f"""\
commands (`{PROGRAM} COMMAND --help` tells more; without a command, it serves):
""" + "\n".join(f"  {name:10} {summary}" for name, summary in SUMMARIES.items())


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with the name of the command in `command`.

    Raises:
        SystemExit: they cannot be understood, or ask for help or the version; what there is to say has been said.
    """
    first = arguments[0] if arguments else None
    command, rest = (first, arguments[1:]) if first in SUMMARIES else ("serve", arguments)
    parser = _PARSERS[command]()
    options = parser.parse_intermixed_args(rest)
    if command in _CHECKS:
        _CHECKS[command](parser, options)
    options.command = command
    return options


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    return {command: parser() for command, parser in _PARSERS.items()}


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
    parser = new_parser("serve", usage=_USAGE, epilog=f"{_COMMANDS}\n\n{EXPLAINED}")
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="the `mcpServers` file")
    parser.add_argument("--config", dest="config_file", metavar="FILE", help="the same, as an option")
    add_environment(parser)
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
    add_shared(parser)
    return parser


def _check() -> argparse.ArgumentParser:
    parser = new_parser("check")
    add_config(parser)
    parser.add_argument("--connect", action="store_true", help="start the servers, and check the names they offer")
    add_json(parser)
    add_shared(parser)
    return parser


def _list() -> argparse.ArgumentParser:
    parser = new_parser("list")
    add_config(parser)
    add_json(parser)
    add_shared(parser)
    return parser


def _call() -> argparse.ArgumentParser:
    parser = new_parser("call")
    add_config(parser)
    parser.add_argument("tool", metavar="SERVER:TOOL", help="the tool's public name, in any spelling")
    parser.add_argument(
        "pairs",
        metavar="key=value",
        nargs="*",
        help="an argument, typed by the tool's input schema; repeat it to give a list",
    )
    parser.add_argument("--args", metavar="JSON", help="all arguments: '{…}', @FILE, or - for stdin")
    add_json(parser, "the whole result as JSON")
    add_shared(parser)
    return parser


def _pin() -> argparse.ArgumentParser:
    parser = new_parser("pin")
    add_config(parser)
    parser.add_argument("--file", metavar="FILE", help="the pins file (default: the setting pins)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--diff", action="store_true", help="show what has changed, and write nothing")
    what.add_argument(
        "--approve", metavar="SERVER", nargs="*", help="record what these servers offer now, or all; after CONFIG"
    )
    add_json(parser)
    add_settings(parser)
    return parser


def _login() -> argparse.ArgumentParser:
    parser = new_parser("login")
    add_config(parser)
    parser.add_argument("server", metavar="SERVER", help="the server's key in it")
    parser.add_argument(
        "--port", metavar="P", type=int, help="port on which the browser comes back (default a free one)"
    )
    add_settings(parser)
    return parser


def _new() -> argparse.ArgumentParser:
    parser = new_parser("new")
    parser.add_argument("name", metavar="NAME", help="the server's name: a-z, 0-9 and `-`")
    parser.add_argument(
        "--lang", choices=["python", "typescript"], default="python", help="its language (default python)"
    )
    parser.add_argument("--tool", metavar="TOOL", nargs="+", action="extend", default=[], help="tools to begin with")
    parser.add_argument(
        "--resource", metavar="NAME=URI", nargs="+", action="extend", default=[], help="resources to begin with"
    )
    parser.add_argument("--prompt", metavar="PROMPT", nargs="+", action="extend", default=[], help="prompts likewise")
    parser.add_argument("--server-version", metavar="V", default="0.1.0", help="its version (default 0.1.0)")
    parser.add_argument("--description", metavar="TEXT", default="", help="what it is for, in one line")
    parser.add_argument("--config", metavar="FILE", help="add it to this `mcpServers` file, which may be new")
    parser.add_argument("--dir", metavar="DIR", help="the folder to write (default NAME)")
    parser.add_argument(
        "--force", action="store_true", help="write into a folder that has files, over those of its own"
    )
    add_json(parser)
    add_debug(parser)
    return parser


_PARSERS = {
    "serve": _serve,
    "check": _check,
    "list": _list,
    "call": _call,
    "status": client_parsers.status,
    "import": client_parsers.import_,
    "install": client_parsers.install,
    "uninstall": client_parsers.uninstall,
    "keys": client_parsers.keys,
    "pin": _pin,
    "login": _login,
    "new": _new,
    "completion": client_parsers.completion,
}
_CHECKS = {
    "serve": _check_serve,
    "status": client_parsers.check_status,
    "import": client_parsers.check_import,
    "keys": client_parsers.check_keys,
}
MODULES = {command: f"commands.{command}" for command in _PARSERS} | {
    "import": "client_commands.import_servers",
    "install": "client_commands.install",
    "uninstall": "client_commands.uninstall",
}
"""The module of each command, in the package `cli`."""
