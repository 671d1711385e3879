"""What the settings say about a child, and about the way to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fastmcp_aggregator.catalogue.snapshot import Catalogue
from fastmcp_aggregator.protocol.methods import METHODS

LINE_LIMIT = 100 * 1024 * 1024
"""Bytes of one message, at most, unless the settings say otherwise; a longer one is dropped."""


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """What a remote child is sent besides the headers of its entry. Names of headers are in lower case."""

    bearer_env: str | None = None
    """The environment variable with its bearer token."""
    oauth: bool = False
    """Whether it is sent the tokens of its login."""
    oauth_dir: Path | None = None
    """Where these are; None: at the usual place."""
    pass_headers: frozenset[str] = frozenset()
    """The headers of a caller's own HTTP request that go with the request made for it."""


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """`line_limit` is in bytes. What a process writes to stderr is also kept in a file in `stderr_dir`, if given, and
    passed on as lines of JSON, if `json_stderr`.
    """

    line_limit: int = LINE_LIMIT
    stderr_dir: Path | None = None
    json_stderr: bool = False
    access: RemoteAccess = RemoteAccess()


DEFAULT_OPTIONS = EndpointOptions()


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds without a sign of life after which a request is given up. Progress is a sign of life."""

    call: float
    read: float
    prompt: float

    @property
    def by_method(self) -> Mapping[str, float]:
        """Those that differ from `call`."""
        return {name: getattr(self, row.deadline) for name, row in METHODS.items() if row.deadline != "call"}


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What the settings say about one child; times are in seconds."""

    startup_timeout: float
    deadlines: Deadlines
    era: str
    version: str
    endpoint: EndpointOptions
    max_tools: int
    max_concurrent_calls: int
    max_waiting_calls: int
    is_isolated: bool = False
    """Whether each client session has an instance of its own."""
    screen: Callable[[str, Catalogue], Catalogue] = lambda key, catalogue: catalogue
    """What is taken up of what the child, by its server key, offers."""
