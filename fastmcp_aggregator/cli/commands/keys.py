"""`keys`: the API keys that let callers in over HTTP."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_json, add_settings

_MOST_DAYS = 36500
NEVER = "never"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = ["create", "list", "set", "revoke"]
    parser.add_argument("action", metavar="|".join(actions), choices=actions, help="what to do")
    parser.add_argument("name", metavar="NAME", nargs="?", help="whose key; of several, the id of one")
    parser.add_argument("--file", metavar="FILE", help="the keys file (default: the setting keys_file)")
    parser.add_argument(
        "--groups", metavar="A,B", help="the groups that the owner may use; '*': all (create's default)"
    )
    parser.add_argument(
        "--roles", metavar="A,B", help="what the owner may do: call, metrics, observe, operate (create: call)"
    )
    parser.add_argument(
        "--days", metavar="N", type=_days, help="days from now until it expires, or `never` (create's default)"
    )
    parser.add_argument("--all", action="store_true", help="set, revoke: all keys of this name, if there are several")
    add_json(parser)
    add_settings(parser)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if (options.name is None) != (options.action == "list"):
        parser.error("`list` takes no NAME" if options.name else f"`{options.action}` needs a NAME")
    rights = [options.groups, options.roles, options.days]
    if options.action not in ("create", "set") and any(given is not None for given in rights):
        parser.error("--groups, --roles and --days go with create and set")
    if options.action == "set" and rights == [None] * 3:
        parser.error("`set` needs what to change: --groups, --roles or --days")
    if options.all and options.action not in ("set", "revoke"):
        parser.error("--all goes with set and revoke")


def _days(text: str) -> int | str:
    if text == NEVER:
        return text
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {_MOST_DAYS}, or `{NEVER}`")
    return int(text)


COMMAND = Command(
    name="keys",
    summary="Make, list, change and revoke the API keys that let callers in over HTTP.",
    usage="keys create|list|set|revoke [NAME] [options]",
    examples=(
        "keys create alice --file keys.json --groups web --days 90",
        "keys set alice --file keys.json --groups web,docs --days 90",
        "keys list --file keys.json --json",
    ),
    add_arguments=_add_arguments,
    check=_check,
    run=action("keys"),
)
