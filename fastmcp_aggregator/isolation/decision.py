"""The decision whether a server is shared or has an instance for each client or folder, and why. Pure.

Under `isolation = "auto"` a server is shared unless something shows that it belongs to one client, then each has an
instance of it, or to one folder, then each working folder, or set of roots, has one. What belongs to a client comes
first: its folder is one of the things that are its own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from fastmcp_aggregator.config import ServerConfig, StdioServer
from fastmcp_aggregator.isolation.folder import why_of_a_folder
from fastmcp_aggregator.isolation.program_words import STATEFUL_WORDS, word_among
from fastmcp_aggregator.settings.options import ChildOptions
from fastmcp_aggregator.status.server_status import Isolation


class Shown(StrEnum):
    """The evidence that a server or its calls have shown, in this run or an earlier one."""

    ASKS_FOR_ROOTS = "asks_for_roots"
    LATE = "late"
    """Lists have waited for it in vain."""
    LISTS_BY_CLIENT = "lists_by_client"
    RELATIVE_PATHS = "relative_paths"


@dataclass(frozen=True, slots=True)
class Decision:
    """How a server is shared. The reason is the end of a sentence, and tells nothing secret."""

    isolation: Isolation
    reason: str


def decide(server: ServerConfig, options: ChildOptions, shown: Collection[str] = ()) -> Decision:
    """The decision for one server, from its entry, its settings, and what it has shown."""
    if options.endpoint.access.is_per_caller:
        return Decision("session", "each caller has an account of its own there")
    setting = options.settings.isolation
    if setting != "auto":
        whose = "every server" if options.own.isolation is None else "this server"
        return Decision(setting, f"`isolation` for {whose} is `{setting}`")
    if why := _why_of_a_client(server, options, shown):
        return Decision("session", why)
    if why := _why_of_a_folder(server, shown):
        return Decision("directory", why)
    return Decision("shared", "nothing shows that it belongs to one client or one folder")


def _why_of_a_folder(server: ServerConfig, shown: Collection[str]) -> str | None:
    if Shown.ASKS_FOR_ROOTS in shown:
        return "it asks for the roots of its client"
    if why := why_of_a_folder(server):
        return why
    return "it has been given paths relative to the working folder" if Shown.RELATIVE_PATHS in shown else None


def is_stateful(server: ServerConfig, options: ChildOptions) -> bool:
    """True if it keeps state from call to call, by its setting or, without one, its name."""
    return why_stateful(server, options) is not None


def why_stateful(server: ServerConfig, options: ChildOptions) -> str | None:
    """The reason to believe that it keeps state from call to call; None: there is none, or its setting denies it."""
    if options.own.stateful is not None:
        return "its setting `stateful` says that it keeps state" if options.own.stateful else None
    word = word_among(STATEFUL_WORDS, server) if isinstance(server, StdioServer) else None
    return f"programs named `{word}` keep state" if word else None


def _why_of_a_client(server: ServerConfig, options: ChildOptions, shown: Collection[str]) -> str | None:
    if why := why_stateful(server, options):
        return why
    return "what it lists depends on what its client can do" if Shown.LISTS_BY_CLIENT in shown else None
