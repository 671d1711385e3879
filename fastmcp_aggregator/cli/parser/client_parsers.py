"""The grammar of the commands around a config: other clients, a running instance, keys, the shell."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.options import add_debug, add_json, add_settings, new_parser

_MOST_DAYS = 36500


def status() -> argparse.ArgumentParser:
    parser = new_parser("status")
    parser.add_argument(
        "url", metavar="URL", nargs="?", default="http://127.0.0.1:8000", help="where it runs (default %(default)s)"
    )
    parser.add_argument("--watch", action="store_true", help="go on, and show what changes")
    parser.add_argument(
        "--every", metavar="SECONDS", type=float, default=2.0, help="--watch: how often to look (default 2)"
    )
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="a file with the API key; without it the key is FASTMCP_AGGREGATOR_API_KEY, if that is set",
    )
    add_json(parser, "as JSON; with --watch, one object in each line")
    add_debug(parser)
    return parser


def check_status(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not 0.1 <= options.every <= 3600:
        parser.error("--every must be a number of seconds from 0.1 to 3600")


def import_() -> argparse.ArgumentParser:
    parser = new_parser("import")
    parser.add_argument("files", metavar="FILE", nargs="*", help="the configs to read (default: those that are found)")
    parser.add_argument(
        "--from", dest="clients", action="append", default=[], choices=_clients(), help="only this client; repeatable"
    )
    parser.add_argument("--output", metavar="FILE", help="write them there as one config; otherwise they are shown")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    parser.add_argument(
        "--rename", action="store_true", help="keep different servers of one name under names of their own"
    )
    parser.add_argument(
        "--secrets-as-variables", action="store_true", help="write ${NAME} for what looks like a secret"
    )
    parser.add_argument("--env-file", metavar="FILE", help="write the secrets' values there, for --env-file of serve")
    add_json(parser)
    add_debug(parser)
    return parser


def check_import(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.files and options.clients:
        parser.error("give files or --from, not both")
    if options.env_file is not None and not options.secrets_as_variables:
        parser.error("--env-file goes with --secrets-as-variables")
    needy = options.overwrite or options.rename or options.secrets_as_variables
    if needy and options.output is None:
        parser.error("--overwrite, --rename and --secrets-as-variables go with --output")


def install() -> argparse.ArgumentParser:
    parser = new_parser("install")
    _add_client(parser)
    parser.add_argument("--config", metavar="FILE", help="the `mcpServers` file that it is to serve")
    parser.add_argument("--env-file", metavar="FILE", help="the environment variables that the config needs")
    parser.add_argument("--settings", metavar="FILE", help="settings file, TOML or JSON")
    parser.add_argument("--groups", metavar="FILE", help="groups file")
    parser.add_argument("--group", metavar="ID", help="serve this group alone")
    return parser


def uninstall() -> argparse.ArgumentParser:
    parser = new_parser("uninstall")
    _add_client(parser)
    return parser


def _add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("client", metavar="CLIENT", choices=_clients(), help=", ".join(_clients()))
    parser.add_argument("--client-config", metavar="FILE", help="the client's file, if it is not the usual one")
    parser.add_argument("--name", metavar="NAME", default="hub", help="what the client calls it (default hub)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)
    add_debug(parser)


def keys() -> argparse.ArgumentParser:
    parser = new_parser("keys")
    parser.add_argument("action", choices=["create", "list", "revoke"], help="what to do")
    parser.add_argument("name", metavar="NAME", nargs="?", help="whose key; to revoke one of several, its id")
    parser.add_argument("--file", metavar="FILE", help="the keys file (default: the setting keys_file)")
    parser.add_argument("--groups", metavar="A,B", help="create: the groups that the owner may use (default all)")
    parser.add_argument("--days", metavar="N", type=int, help="create: days until it expires (default never)")
    add_json(parser)
    add_settings(parser)
    return parser


def check_keys(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if (options.name is None) != (options.action == "list"):
        parser.error("`list` takes no NAME" if options.name else f"`{options.action}` needs a NAME")
    if options.action != "create" and (options.groups is not None or options.days is not None):
        parser.error("--groups and --days go with create")
    if options.days is not None and not 1 <= options.days <= _MOST_DAYS:
        parser.error(f"--days must be a number from 1 to {_MOST_DAYS}")


def completion() -> argparse.ArgumentParser:
    parser = new_parser("completion")
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")
    add_debug(parser)
    return parser


def _clients() -> list[str]:
    from fastmcp_aggregator.client_configs.known import CLIENTS  # noqa: PLC0415 - most commands do not need it

    return list(CLIENTS)
