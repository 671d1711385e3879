"""The arguments that several commands have."""

from __future__ import annotations

import argparse


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


def add_client(parser: argparse.ArgumentParser) -> None:
    """A client whose config is changed, and how."""
    clients = client_ids()
    parser.add_argument("client", metavar="CLIENT", choices=clients, help=", ".join(clients))
    parser.add_argument("--client-config", metavar="FILE", help="the client's file, if it is not the usual one")
    parser.add_argument("--name", metavar="NAME", default="hub", help="what the client calls it (default hub)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser)


def client_ids() -> list[str]:
    from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS  # noqa: PLC0415 - most commands do not need it

    return list(CLIENT_CONFIGS)
