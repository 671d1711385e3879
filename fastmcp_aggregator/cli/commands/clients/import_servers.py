"""`import`: the servers that MCP clients on this machine have, as one config."""

from __future__ import annotations

import argparse

from fastmcp_aggregator.cli.parser.command import Command, action, add_json, client_ids


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="*", help="the configs to read (default: those that are found)")
    parser.add_argument(
        "--from", dest="clients", action="append", default=[], choices=client_ids(), help="only this client; repeatable"
    )
    parser.add_argument("--output", metavar="FILE", help="write them there as one config; otherwise they are shown")
    parser.add_argument("--overwrite", action="store_true", help="replace files that exist")
    parser.add_argument("--yes", action="store_true", help="take the files of the project that is worked in, too")
    parser.add_argument(
        "--rename", action="store_true", help="keep different servers of one name under names of their own"
    )
    parser.add_argument(
        "--secrets-as-variables", action="store_true", help="write ${NAME} for every value that is not shown"
    )
    parser.add_argument("--env-file", metavar="FILE", help="write the secrets' values there, for --env-file of serve")
    add_json(parser)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.files and options.clients:
        parser.error("give files or --from, not both")
    if options.env_file is not None and not options.secrets_as_variables:
        parser.error("--env-file goes with --secrets-as-variables")
    needy = options.overwrite or options.rename or options.secrets_as_variables or options.yes
    if needy and options.output is None:
        parser.error("--overwrite, --rename, --secrets-as-variables and --yes go with --output")


COMMAND = Command(
    name="import",
    summary="Find the servers that your MCP clients have, and write them as one config.",
    usage="import [FILE ...] [--output FILE] [options]",
    examples=(
        "import",
        "import --output mcp.json --secrets-as-variables --env-file mcp.env",
        "import --from cursor --from codex --output mcp.json --rename",
        "import claude_desktop_config.json --output mcp.json",
    ),
    add_arguments=_add_arguments,
    check=_check,
    run=action("import_servers"),
)
