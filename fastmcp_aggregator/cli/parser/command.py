"""A command: its help, its arguments, and what it does. A command's file is imported for `--help`, so it is light."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

from fastmcp_aggregator.cli.terminal.exits import EXPLAINED
from fastmcp_aggregator.version import PROGRAM, VERSION

HERE = "http://127.0.0.1:8000"
"""The default address of an instance."""
DEFAULT_NAME = "hub"
"""The name of the entry in a client's config, by default."""
WHICH_HUB = "its name, the beginning of its id, or the path of its config"


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the program.

    `usage` and each of `examples` is what follows the program's name. `run` returns the exit code. `check` calls
    `parser.error` for arguments that do not go together.
    """

    name: str
    summary: str
    usage: str
    examples: tuple[str, ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    check: Callable[[argparse.ArgumentParser, argparse.Namespace], None] | None = None
    is_internal: bool = False
    """True if it is for this program itself, and so not listed."""

    def parser(self, usage: str | None = None, epilog: str = EXPLAINED) -> argparse.ArgumentParser:
        """The parser of its arguments, with the options that every command has."""
        examples = "\n".join(f"  {PROGRAM} {example}" for example in self.examples)
        parser = _Parser(
            prog=PROGRAM if self.name == "serve" else f"{PROGRAM} {self.name}",
            usage=usage,
            description=self.summary,
            epilog=f"examples:\n{examples}\n\n{epilog}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
        self.add_arguments(parser)
        parser.add_argument("--debug", action="store_true", help="log more, and show tracebacks")
        return parser

    def parsed(self, arguments: Sequence[str], parser: argparse.ArgumentParser | None = None) -> argparse.Namespace:
        """The options, by default with the command's own parser.

        Raises:
            SystemExit: they cannot be understood, or ask for help or the version; what there is to say has been said.
        """
        parser = parser or self.parser()
        options = parser.parse_intermixed_args(arguments)
        if self.check is not None:
            self.check(parser, options)
        return options


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in a line or two, with what may have been meant, and not how all of it is used."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}{self._meant(message)}\nAll options: {self.prog} --help\n")

    def _meant(self, message: str) -> str:
        unknown = re.search(r"unrecognized arguments: .*?(--[\w-]{2,64})", message)
        choice = re.search(r"invalid choice: '([\w-]{2,64})' \(choose from (.*)\)", message)
        word = unknown[1] if unknown else choice[1] if choice else ""
        known = list(self._option_string_actions) if unknown else re.findall(r"[\w-]+", choice[2]) if choice else []
        setting = word[2:].replace("-", "_")
        if unknown and "--settings" in known and _is_setting(setting):
            return f"; it is a setting: FASTMCP_AGGREGATOR_{setting.upper()}, or `{setting}` in the file of --settings"
        similar = get_close_matches(word, known, 1)
        return f"; did you mean `{similar[0]}`?" if similar else ""


def _is_setting(name: str) -> bool:
    from fastmcp_aggregator.settings.model import AggregatorSettings  # noqa: PLC0415 - only a wrong option needs it

    return name in AggregatorSettings.model_fields


def action(module: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    """A function of a module of `cli.actions`, which is imported when it is called."""

    def run(options: argparse.Namespace) -> int:
        code: int = getattr(import_module(f"fastmcp_aggregator.cli.actions.{module}"), function)(options)
        return code

    return run


def add_served(parser: argparse.ArgumentParser) -> None:
    """Add the options of the served config, and of how clients see it."""
    parser.add_argument("config", metavar="CONFIG", nargs="?", help="the `mcpServers` file")
    parser.add_argument("--config", dest="config_file", metavar="FILE", help="the same, as an option")
    add_environment(parser)
    parser.add_argument("--name", metavar="NAME", help="server name shown to clients")
    parser.add_argument("--server-version", metavar="V", help="server version shown to clients")
    parser.add_argument(
        "--otel",
        dest="telemetry",
        action="store_const",
        const=True,
        help="export traces as the OTEL_* variables say (needs the extra `otel`)",
    )
    add_view(parser)


def require_config(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a usage error unless the config is given once."""
    if options.config_file is not None:
        if options.config is not None:
            parser.error("give the config once: as CONFIG or with --config")
        options.config = options.config_file
    if options.config is None:
        parser.error(f"give the path of a config file, such as: {parser.prog} config.json")


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--settings", metavar="FILE", help="settings file, TOML or JSON")


def add_json(parser: argparse.ArgumentParser, what: str = "as JSON, for programs") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="the `mcpServers` file")
    add_environment(parser)


def add_environment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env-file", metavar="FILE", help="more environment variables: NAME=VALUE in each line")


def add_view(parser: argparse.ArgumentParser) -> None:
    """The options that decide what clients see: settings, groups, names, strictness."""
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


def add_api_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="a file with the API key; without it the key is FASTMCP_AGGREGATOR_API_KEY, if that is set",
    )


def add_client(parser: argparse.ArgumentParser) -> None:
    """A client whose config is changed, and how."""
    clients = client_ids()
    parser.add_argument("client", metavar="CLIENT", choices=clients, help=f"the client: {', '.join(clients)}")
    parser.add_argument("--client-config", metavar="FILE", help="the client's file, if it is not the usual one")
    parser.add_argument(
        "--name", metavar="NAME", default=DEFAULT_NAME, help=f"what the client calls it (default {DEFAULT_NAME})"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)


def client_ids() -> list[str]:
    from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS  # noqa: PLC0415 - most commands do not need it

    return list(CLIENT_CONFIGS)
