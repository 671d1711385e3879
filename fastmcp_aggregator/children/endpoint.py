"""The endpoint of a child: a process of ours, or an address; and why it failed."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from fastmcp_aggregator.children.http.credentials import credentials_of, shown_url
from fastmcp_aggregator.children.http.transport import RemoteTransport
from fastmcp_aggregator.children.process.environment import NOT_STARTED
from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.children.process.stderr_summary import summary_of
from fastmcp_aggregator.children.session.failures import describe
from fastmcp_aggregator.children.session.transport import WatchedTransport
from fastmcp_aggregator.children.session.transport_failure import HttpFailure
from fastmcp_aggregator.children.stdio.transport import ProcessTransport
from fastmcp_aggregator.config import RemoteServer, ServerConfig, StdioServer, UnresolvedServer
from fastmcp_aggregator.config.disclosure import shown
from fastmcp_aggregator.errors import ChildServerError, Phase
from fastmcp_aggregator.oauth.account import Account
from fastmcp_aggregator.oauth.accounts import Accounts
from fastmcp_aggregator.oauth.tokens import HUB
from fastmcp_aggregator.settings.options import EndpointOptions

_EXIT_CODE_WAIT = 0.5
"""Seconds between the end of a child's output and its exit code, at most."""
_SUMMARIZED = 100
"""Lines of stderr, at most, that are searched for the reason."""

Launch = Callable[[StdioServer, EndpointOptions], Awaitable[ChildProcess]]


class Endpoint(ABC):
    """The way to a child, from one connection to its end."""

    pid: int | None = None
    """The process, while it runs."""
    session_expired = False
    """True if the child is up, but our session has expired there."""
    why_login_needed: str | None = None
    """Why a person has to log in before it can be used; None: none has to."""
    dropped_stderr_lines: int = 0
    """Lines of its stderr that were not passed on because they were too many."""

    @abstractmethod
    async def open(self, stack: AsyncExitStack) -> WatchedTransport:
        """Start or address the child; register on the stack what is to be closed."""

    @abstractmethod
    async def explain(self, phase: Phase, reason: str, cause: Exception | None) -> ChildServerError:
        """The failure, with `reason` or what the endpoint knows better."""

    def stderr(self, lines: int) -> tuple[str, ...]:
        """The last lines that it has written to stderr, oldest first."""
        return ()

    def kill(self) -> None:  # noqa: B027 - there is nothing to end at a remote child
        """Kill the child, if it is a process of ours."""


NewEndpoint = Callable[[ServerConfig, EndpointOptions], Endpoint]


def endpoint_for(
    server: ServerConfig,
    options: EndpointOptions,
    launch: Launch = ChildProcess.spawn,
    accounts: Accounts | None = None,
) -> Endpoint:
    """A new endpoint of the right kind. `accounts` has the tokens for servers with OAuth."""
    match server:
        case StdioServer():
            return ProcessEndpoint(server, options, launch)
        case RemoteServer():
            return RemoteEndpoint(server, options, accounts)
        case UnresolvedServer():
            return NoEndpoint(server)


def reason_of(error: Exception | None, startup_timeout: float) -> str:
    """Why a connection ended, as far as the exception says; without one, it was just closed."""
    if error is None:
        return "the connection was lost"
    if isinstance(error, TimeoutError):
        return (
            f"it did not initialize within {startup_timeout:g} s; "
            "raise `startup_timeout` in the settings if it needs longer"
        )
    return describe(error)


def _with_stderr(reason: str, lines: Sequence[str]) -> str:
    summary = summary_of(lines)
    if summary is not None:
        return f"{reason} (stderr: {summary})"
    return f"{reason} (no error on its stderr)" if any(map(str.strip, lines)) else reason


class ProcessEndpoint(Endpoint):
    """A child process of ours."""

    def __init__(self, server: StdioServer, options: EndpointOptions, launch: Launch) -> None:
        self._server = server
        self._options = options
        self._launch = launch
        self._process: ChildProcess | None = None
        self._transport: ProcessTransport | None = None

    async def open(self, stack: AsyncExitStack) -> WatchedTransport:
        process = await self._launch(self._server, self._options)
        self._process = process
        stack.push_async_callback(process.stop)
        self._transport = ProcessTransport(process, has_fast_path=self._options.has_fast_path)
        return self._transport

    @property
    def pid(self) -> int | None:  # type: ignore[override]
        """The process id, while it runs."""
        return self._process.pid if self._process and not self._process.exited.is_set() else None

    async def explain(self, phase: Phase, reason: str, cause: Exception | None) -> ChildServerError:
        """Prefer how the process ended over the exception; wait a moment for its exit code."""
        process = self._process
        if isinstance(cause, TimeoutError) and self._server.runner is not None:
            reason += f"; the first start with {Path(self._server.command).stem} downloads the package"
        if process is None:
            return ChildServerError(self._server.key, phase, reason, cause=cause)
        if self._transport is not None and self._transport.why_lost is not None:
            return ChildServerError(self._server.key, phase, self._transport.why_lost, cause=cause)
        if process.closed.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(process.exited.wait(), _EXIT_CODE_WAIT)
            reason = process.describe_exit()
        # The last lines on the stderr of a process that was killed while it served are unrelated.
        says_why = phase != "runtime" or process.has_ended_by_itself
        said = process.stderr.tail(_SUMMARIZED) if says_why else ()
        return ChildServerError(
            self._server.key,
            phase,
            _with_stderr(reason, said),
            cause=cause,
            stderr_tail=process.stderr.tail(),
            public_reason=reason,
        )

    @property
    def dropped_stderr_lines(self) -> int:  # type: ignore[override]
        return 0 if self._process is None else self._process.stderr.dropped_lines

    def stderr(self, lines: int) -> tuple[str, ...]:
        return () if self._process is None else self._process.stderr.tail(lines)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill_group()


class NoEndpoint(Endpoint):
    """The endpoint of a server that this config cannot start, however often it is tried."""

    def __init__(self, server: UnresolvedServer) -> None:
        self._server = server

    async def open(self, stack: AsyncExitStack) -> WatchedTransport:
        raise await self.explain("startup", self._server.reason, None)

    async def explain(self, phase: Phase, reason: str, cause: Exception | None) -> ChildServerError:
        return ChildServerError(self._server.key, phase, reason, cause=cause, pause=math.inf, public_reason=NOT_STARTED)


class RemoteEndpoint(Endpoint):
    """A server at an address."""

    def __init__(self, server: RemoteServer, options: EndpointOptions, accounts: Accounts | None) -> None:
        self._server = server
        self._options = options
        self._transport: RemoteTransport | None = None
        self._login: Account | None = None
        access = options.access
        if access.oauth is not None:
            assert accounts is not None
            self._login = accounts.account(shown_url(server.url), access.oauth, access.principal or HUB)

    async def open(self, stack: AsyncExitStack) -> WatchedTransport:
        credentials = credentials_of(self._server, self._options.access, self._login)
        self._transport = RemoteTransport(self._server, self._options.line_limit, credentials)
        return self._transport

    @property
    def why_login_needed(self) -> str | None:  # type: ignore[override]
        """Why a person has to log in before it can be used."""
        return None if self._login is None else self._login.why_login_needed

    @property
    def session_expired(self) -> bool:  # type: ignore[override]
        """True if it has answered that our session is unknown."""
        failure = self._failure
        return failure is not None and failure.kind == "expired"

    async def explain(self, phase: Phase, reason: str, cause: Exception | None) -> ChildServerError:
        """Prefer what the HTTP client has recorded over the exception, unless that is a timeout."""
        failure = self._failure
        if failure is None or isinstance(cause, TimeoutError):
            return ChildServerError(self._server.key, phase, self._at(reason), cause=cause, public_reason=reason)
        return ChildServerError(
            self._server.key,
            phase,
            self._at(failure.reason),
            cause=cause,
            pause=failure.pause,
            auth_error=failure.kind in ("auth", "login"),
            login_needed=failure.kind == "login",
            public_reason=failure.reason,
        )

    def _at(self, reason: str) -> str:
        return f"{shown('url', self._server.url, 'local')}: {reason}"

    @property
    def _failure(self) -> HttpFailure | None:
        return self._transport.failure if self._transport else None
