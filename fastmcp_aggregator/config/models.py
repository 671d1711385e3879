"""The validated config: which servers there are, and how each is started or reached.

What may be secret is a `SecretStr` or left out of the repr; `label` is what of a server may be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import SecretStr

from fastmcp_aggregator.config.documents import path_step
from fastmcp_aggregator.errors import ConfigProblem

FROM_DICT = "<dict>"
"""The `source` of a config that was given as a dict."""
_MOST_PROBLEMS_TOLD = 10


class Runner(NamedTuple):
    """`kind` tells how its arguments are read; `begins` is the index of the first that is its own."""

    kind: str
    begins: int


def runner_of(command: str, arguments: Sequence[str]) -> Runner | None:
    """The program that downloads the package of a server when it is not installed."""
    words = [Path(command).stem.lower(), *arguments]
    begins = 0
    if words[0] == "cmd" and len(words) > 2 and words[1].lower() == "/c":
        begins = 2
    match [word.lower() for word in words[begins : begins + 3]]:
        case ["npx" | "bunx", *_]:
            return Runner("npx", begins)
        case ["pnpm" | "yarn", "dlx", *_]:
            return Runner("npx", begins + 1)
        case ["uvx", *_]:
            return Runner("uvx", begins)
        case ["uv", "tool", "run"]:
            return Runner("uvx", begins + 2)
        case ["pipx", "run", *_]:
            return Runner("pipx", begins + 1)
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """The fields of every entry. `timeout` is in seconds.

    `label` is what of its command or URL may be shown on a terminal: variables by name, without arguments, user info
    and query. `extras` has the keys of the entry that mean nothing here; they make no difference between two servers.
    `misspelt` has those of them that are nearly a field, with that field.
    """

    key: str
    label: str
    timeout: float | None = None
    description: str | None = field(default=None, repr=False)
    extras: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    misspelt: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioServer(_Server):
    """A server that is started as a process."""

    command: str = field(repr=False)
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, SecretStr] = field(default_factory=dict)
    cwd: str | None = field(default=None, repr=False)
    folder_variables: tuple[str, ...] = ()
    """The variables for the working folder that it was read with."""
    read_in: Callable[[str], StdioServer] | None = field(default=None, repr=False, compare=False)
    """The same entry, read with these variables for another working folder."""

    @property
    def runner(self) -> Runner | None:
        """The program that downloads its package when it is not installed."""
        return runner_of(self.command, self.args)

    def environment(self) -> dict[str, str]:
        """The plain values of `env`, for the process and nothing else."""
        return {name: value.get_secret_value() for name, value in self.env.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServer(_Server):
    """A server that is reached by HTTP."""

    url: str = field(repr=False)
    transport: Literal["http", "sse"] = "http"
    headers: Mapping[str, SecretStr] = field(default_factory=dict)

    def plain_headers(self) -> dict[str, str]:
        """The plain values of `headers`, for requests to the server and nothing else."""
        return {name: value.get_secret_value() for name, value in self.headers.items()}


def only_lack_values(problems: Iterable[ConfigProblem]) -> bool:
    """True if the environment could mend every problem."""
    return all(problem.code == "missing_env_var" for problem in problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedServer(_Server):
    """A server that can be neither started nor reached: variables of its entry have no value, or the entry is wrong.

    `label` and `transport` are as far as they can be told; `missing` has the names of the variables, and `problems`
    where each is used, and what else is wrong. `known` is the server without the fields that lack a variable, None if
    its `command` or `url` does, or if there is something else.
    """

    transport: Literal["stdio", "http"]
    missing: tuple[str, ...]
    problems: tuple[ConfigProblem, ...]
    known: StdioServer | RemoteServer | None = None

    @property
    def reason(self) -> str:
        """Why it fails and what to do, in one sentence."""
        if not only_lack_values(self.problems):
            left = len(self.problems) - _MOST_PROBLEMS_TOLD
            more = f"; and {left} more" if left > 0 else ""
            return f"its entry cannot be used: {'; '.join(map(self.told, self.problems[:_MOST_PROBLEMS_TOLD]))}{more}"
        first, *others = self.missing
        fields = ", ".join(dict.fromkeys(f"`{self._field(problem)}`" for problem in self.problems))
        what = f"variables {', '.join(self.missing)} are" if others else f"variable {first} is"
        return (
            f"the environment {what} not set, which {fields} of its entry need{'' if ', ' in fields else 's'}: give a "
            "value where this is started (for a hub, by the client that starts it) or in an --env-file, or write "
            f"${{{first}:-default}}"
        )

    def told(self, problem: ConfigProblem) -> str:
        """A problem with the field that it is in; that of a variable names the variable."""
        if problem.code == "missing_env_var":
            return problem.message
        field = self._field(problem)
        return f"`{field}`: {problem.message}" if field else problem.message

    def _field(self, problem: ConfigProblem) -> str:
        return problem.path.removeprefix(f"$.mcpServers{path_step(self.key)}").removeprefix(".")


ServerConfig = StdioServer | RemoteServer | UnresolvedServer


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The enabled servers by server key, in file order.

    `source` is the path as given, which an app that is served follows, or `<dict>`.
    """

    servers: Mapping[str, ServerConfig]
    source: str
    disabled: frozenset[str] = frozenset()
    """The keys of the others."""

    @property
    def problems(self) -> tuple[ConfigProblem, ...]:
        """Why some of the servers cannot be started or reached."""
        unresolved = (server for server in self.servers.values() if isinstance(server, UnresolvedServer))
        return tuple(problem for server in unresolved for problem in server.problems)

    @property
    def known(self) -> Iterator[StdioServer | RemoteServer]:
        """The servers that can be started or reached, and what is known of those that lack variables."""
        for server in self.servers.values():
            known = server.known if isinstance(server, UnresolvedServer) else server
            if known is not None:
                yield known

    @property
    def path(self) -> Path | None:
        """The file that it was read from, if it was."""
        return None if self.source == FROM_DICT else Path(self.source).absolute()

    def only(self, keys: Collection[str]) -> McpConfig:
        """A copy with these servers alone."""
        return McpConfig(
            {key: server for key, server in self.servers.items() if key in keys}, self.source, self.disabled
        )


def changes_between(before: McpConfig, after: McpConfig) -> list[str]:
    """The differences of two configs, for people: `added: a, b`, `removed: c`, `changed: d`."""
    old, new = before.servers, after.servers
    found = {
        "added": [key for key in new if key not in old],
        "removed": [key for key in old if key not in new],
        "changed": [key for key in new if key in old and new[key] != old[key]],
    }
    return [f"{what}: {', '.join(keys)}" for what, keys in found.items() if keys]
