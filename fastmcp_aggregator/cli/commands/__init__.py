"""The commands of the program: every module here and below has one, and is found by being here."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from fastmcp_aggregator.cli.parser.command import Command

_ORDER = (
    "serve",
    "attach",
    "check",
    "list",
    "call",
    "status",
    "stop",
    "logs",
    "restart",
    "cache",
    "import",
    "install",
    "uninstall",
    "keys",
    "pin",
    "login",
    "logout",
    "accounts",
    "new",
)
"""The order in the help; any other command follows."""


def all_commands() -> dict[str, Command]:
    """Every command that people are told of, by name."""
    return {name: command for name, command in known_commands().items() if not command.is_internal}


@cache
def known_commands() -> dict[str, Command]:
    """Every command by name, with those that this program starts itself with."""
    modules = [import_module(found.name) for found in walk_packages(__path__, f"{__name__}.") if not found.ispkg]
    commands: dict[str, Command] = {module.COMMAND.name: module.COMMAND for module in modules}
    known = [name for name in _ORDER if name in commands]
    return {name: commands[name] for name in dict.fromkeys([*known, *commands])}
