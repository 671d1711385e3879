"""The validated config: which servers there are, and how each is started or reached.

What may be secret is a `SecretStr` or left out of the repr; `label` is what of a server may be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr

from fastmcp_aggregator.errors import ConfigProblem

FROM_DICT = "<dict>"
"""The `source` of a config that was given as a dict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer:
    """A server that is started as a process. `timeout` is in seconds.

    `label` is what of the command may be shown on a terminal: variables by name, without arguments.
    `extras` has the keys of the entry that mean nothing here; they make no difference between two servers.
    """

    key: str
    label: str
    command: str = field(repr=False)
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, SecretStr] = field(default_factory=dict)
    cwd: str | None = field(default=None, repr=False)
    timeout: float | None = None
    description: str | None = field(default=None, repr=False)
    extras: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    folder_variables: tuple[str, ...] = ()
    """The variables for the working folder that it was read with."""
    read_in: Callable[[str], StdioServer] | None = field(default=None, repr=False, compare=False)
    """The same entry, read with these variables for another working folder."""

    def environment(self) -> dict[str, str]:
        """The plain values of `env`, for the process and nothing else."""
        return {name: value.get_secret_value() for name, value in self.env.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServer:
    """A server that is reached by HTTP. `timeout` is in seconds.

    `label` is what of the URL may be shown on a terminal: variables by name, without user info and query.
    `extras` has the keys of the entry that mean nothing here; they make no difference between two servers.
    """

    key: str
    label: str
    url: str = field(repr=False)
    transport: Literal["http", "sse"] = "http"
    headers: Mapping[str, SecretStr] = field(default_factory=dict)
    timeout: float | None = None
    description: str | None = field(default=None, repr=False)
    extras: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def plain_headers(self) -> dict[str, str]:
        """The plain values of `headers`, for requests to the server and nothing else."""
        return {name: value.get_secret_value() for name, value in self.headers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedServer:
    """A server that can be neither started nor reached, because variables of its entry have no value.

    `label` and `transport` are as far as they can be told; `missing` has the names of the variables, and `problems`
    where each is used.
    """

    key: str
    label: str
    transport: Literal["stdio", "http"]
    missing: tuple[str, ...]
    problems: tuple[ConfigProblem, ...]
    timeout: float | None = None
    description: str | None = field(default=None, repr=False)
    extras: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def reason(self) -> str:
        """Why it fails and what to do, in one sentence."""
        first, *others = self.missing
        if not others:
            return f"the environment variable {first} is not set; set it, or write ${{{first}:-default}} in the config"
        names = ", ".join(self.missing)
        return (
            f"the environment variables {names} are not set; set them, or write defaults such as ${{{first}:-default}}"
        )


ServerConfig = StdioServer | RemoteServer | UnresolvedServer


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The enabled servers by server key, in file order.

    `source` is the path as given, which an app that is served follows, or `<dict>`.
    """

    servers: Mapping[str, ServerConfig]
    source: str

    @property
    def problems(self) -> tuple[ConfigProblem, ...]:
        """Why some of the servers cannot be started or reached."""
        unresolved = (server for server in self.servers.values() if isinstance(server, UnresolvedServer))
        return tuple(problem for server in unresolved for problem in server.problems)

    @property
    def path(self) -> Path | None:
        """The file that it was read from, if it was."""
        return None if self.source == FROM_DICT else Path(self.source).absolute()

    def only(self, keys: Collection[str]) -> McpConfig:
        """The same with these servers alone."""
        return McpConfig({key: server for key, server in self.servers.items() if key in keys}, self.source)
