"""`keys`: the API keys that let callers in over HTTP."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_json, add_settings

_MOST_DAYS = 36500


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["create", "list", "revoke"], help="what to do")
    parser.add_argument("name", metavar="NAME", nargs="?", help="whose key; to revoke one of several, its id")
    parser.add_argument("--file", metavar="FILE", help="the keys file (default: the setting keys_file)")
    parser.add_argument("--groups", metavar="A,B", help="create: the groups that the owner may use (default all)")
    parser.add_argument(
        "--roles", metavar="A,B", help="create: what the owner may do: call, metrics, observe, operate (default call)"
    )
    parser.add_argument("--days", metavar="N", type=int, help="create: days until it expires (default never)")
    parser.add_argument("--all", action="store_true", help="revoke: all keys of this name, if there are several")
    add_json(parser)
    add_settings(parser)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if (options.name is None) != (options.action == "list"):
        parser.error("`list` takes no NAME" if options.name else f"`{options.action}` needs a NAME")
    if options.action != "create" and any(given is not None for given in (options.groups, options.roles, options.days)):
        parser.error("--groups, --roles and --days go with create")
    if options.all and options.action != "revoke":
        parser.error("--all goes with revoke")
    if options.days is not None and not 1 <= options.days <= _MOST_DAYS:
        parser.error(f"--days must be a number from 1 to {_MOST_DAYS}")


COMMAND = Command(
    name="keys",
    summary="Make, list and revoke the API keys that let callers in over HTTP.",
    usage="keys create|list|revoke [NAME] [options]",
    examples=("keys create alice --file keys.json --groups web --days 90", "keys list --file keys.json --json"),
    add_arguments=_add_arguments,
    check=_check,
    run=action("keys"),
)
