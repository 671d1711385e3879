"""One supervised child: one task owns its process, its session, its state and its catalogue.

Theory. `run` is the whole life of a child, a loop of lives: connect and list under the start-up deadline, serve
until the connection is lost, wait with back-off, again. Everything that a life opened is closed in the same task
before the next life begins, so at most one process of a child exists. Requests come from other tasks; they only
look at `session`, which is set exactly while the child is running, and a request to a child that waits for its next
attempt brings that attempt forward. A request is never sent twice.

A child that has been silent and idle for a while is asked for a sign of life; without one, its life ends like after a
crash. A busy child is never asked: its calls have deadlines of their own.

Nothing else changes the state. `on_change` is told after each change in what the child offers or whether it can be
used; it must not block.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.children.backoff import Backoff
from fastmcp_aggregator.children.calls import Calls, Deadlines
from fastmcp_aggregator.children.clients import Clients
from fastmcp_aggregator.children.endpoint import Launch, endpoint_for, reason_of
from fastmcp_aggregator.children.failures import describe
from fastmcp_aggregator.children.listing import read_catalogue
from fastmcp_aggregator.children.options import EndpointOptions
from fastmcp_aggregator.children.ownership import Owner
from fastmcp_aggregator.children.process import ChildProcess
from fastmcp_aggregator.children.requests import request
from fastmcp_aggregator.children.session import ChildSession, Hearing, open_session, wait_first
from fastmcp_aggregator.children.state import ChildState, may_become
from fastmcp_aggregator.children.status import ServerStatus
from fastmcp_aggregator.children.tally import Tally
from fastmcp_aggregator.children.transports import WatchedTransport
from fastmcp_aggregator.config import ServerConfig, StdioServer
from fastmcp_aggregator.errors import ChildServerError, Phase

logger = logging.getLogger(__name__)

_LIST_DEADLINE = 60.0
"""Seconds a running child has to list everything again."""
HEALTH_INTERVAL = 30.0
"""Seconds of silence after which an idle child is asked for a sign of life."""
HEALTH_DEADLINE = 10.0
"""Seconds it has to give one."""
_RENEWAL_PAUSE = 10.0
"""Seconds between two sessions that a remote child forgets, so that it is not asked for new ones without end."""
_REFUSALS = frozenset({METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION})
"""How a child says that it does not speak an era."""
_LISTEN_BOUND = 2.0
"""Seconds that a modern child has to agree to tell of list changes, before its lists are read all the same."""
_CHANGE_QUIET = 0.05
"""Seconds to collect list_changed notifications before listing again."""


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
    screen: Callable[[str, Catalogue], Catalogue] = lambda key, catalogue: catalogue
    """What is taken up of what the child, by its server key, offers."""


class Child:
    """One configured MCP server, and our side of it."""

    def __init__(
        self,
        server: ServerConfig,
        options: ChildOptions,
        on_change: Callable[[Child, frozenset[Kind]], None],
        launch: Launch = ChildProcess.spawn,
        clients: Clients | None = None,
        place: Hashable = None,
    ) -> None:
        self.server = server
        self.key = server.key
        self.place = server.key if place is None else place
        """What is the same for all lives and successors of a child; of instances of one child, each has its own."""
        self.options = options
        self.state = ChildState.INITIALIZING
        self.catalogue: Catalogue | None = None
        """The last good catalogue, kept while the child is down."""
        self.session: ChildSession | None = None
        self.last_failure: ChildServerError | None = None
        self.settled = asyncio.Event()
        """Set when the first start has succeeded or failed."""
        self.attempted = asyncio.Event()
        """Set when the present attempt has succeeded or failed; then there is a new one."""
        self.why_stopped = ""
        self.calls = Calls(
            server.key,
            options.deadlines,
            concurrent=options.max_concurrent_calls,
            waiting=options.max_waiting_calls,
        )
        self._tally = Tally()
        self._on_change = on_change
        self._clients = clients or Clients()
        self._refused: set[str] = set()
        """Eras that the child does not speak."""
        self._stopping = asyncio.Event()
        self._startup: asyncio.Timeout | None = None
        self._phase: Phase = "startup"
        self._list_changed = asyncio.Event()
        self._changed_kinds: frozenset[Kind] = frozenset()
        self._wake = asyncio.Event()
        self._backoff = Backoff(has_crash_loops=isinstance(server, StdioServer))
        self._new_endpoint = partial(endpoint_for, server, options.endpoint, launch)
        self._endpoint = self._new_endpoint()
        self._renewed_at = -_RENEWAL_PAUSE
        self._since = time.monotonic()
        self._retry_at: float | None = None
        self._starts = 0
        self._lists_read = 0

    # The owner's side.

    async def run(self) -> None:
        """Live until `stop` is called. Never raises because of what the child does."""
        while not self._stopping.is_set():
            if self.state is ChildState.FAILED:
                self._become(ChildState.INITIALIZING)
            await self._live_once()
            if self.state is ChildState.FAILED:
                await self._wait_before_retry()
        self._end_attempt()
        self._become(ChildState.STOPPED)

    def stop(self, why: str = "it is stopped with the aggregator") -> None:
        """Ask `run` to end; it closes the child politely and then returns. `why` is for those who call it meanwhile."""
        if not self._stopping.is_set():
            self.why_stopped = why
        self._stopping.set()
        if self._startup is not None:
            self._startup.reschedule(asyncio.get_running_loop().time())

    def kill(self) -> None:
        """End the child's process group at once, without a word to it."""
        self._endpoint.kill()

    async def _live_once(self) -> None:
        """One life: come up, serve, and be closed. Ends `failed`, unless the child is to stop."""
        self._starts += 1
        self._phase = "startup"
        self._endpoint = self._new_endpoint()
        try:
            async with AsyncExitStack() as stack:
                failure = await self._live(stack)
                self.session = None
                if not self._stopping.is_set():
                    self._fail(failure)
        except Exception as error:
            logger.debug("closing server %r raised %r", self.key, error)

    async def _live(self, stack: AsyncExitStack) -> ChildServerError:
        """Come up and serve; returns why it ended."""
        try:
            await self._come_up(stack)
            await self._until_lost()
        except Exception as error:
            return await self.explain(error)
        return await self.explain(None)

    async def _come_up(self, stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(self.options.startup_timeout) as self._startup:
                session = await self._connect(stack)
                await self._listen(session, stack)
                catalogue = await self._read(session)
        finally:
            self._startup = None
        self._phase = "runtime"
        self._serve(session, catalogue)

    async def _connect(self, stack: AsyncExitStack) -> ChildSession:
        """Start or address the child and shake hands, in the first era that it does not refuse."""
        transport = await self._endpoint.open(stack)
        self._phase = "initialization"
        declared = await self._clients.capabilities()
        eras = [era for era in self._clients.eras(self.options.era) if era not in self._refused]
        for era in eras[:-1]:
            attempt = await stack.enter_async_context(AsyncExitStack())
            try:
                return await attempt.enter_async_context(self._session_over(transport, declared, era))
            except MCPError as error:
                if error.code not in _REFUSALS:
                    raise
            self._refused.add(era)
            await attempt.aclose()
            self._endpoint.kill()
            self._endpoint = self._new_endpoint()
            transport = await self._endpoint.open(stack)
        return await stack.enter_async_context(self._session_over(transport, declared, eras[-1]))

    def _session_over(self, transport: WatchedTransport, declared: Mapping[str, Any], era: str) -> Any:
        transport.tally = self._tally
        return open_session(
            transport,
            server_key=self.key,
            era=era,
            version=self.options.version,
            capabilities=declared,
            hearing=Hearing(
                resident=lambda: self._clients.resident,
                on_list_changed=self._hear_of_changes,
                on_updated=partial(self._clients.on_updated, self),
            ),
        )

    def _hear_of_changes(self, kinds: frozenset[Kind]) -> None:
        self._changed_kinds |= kinds
        self._list_changed.set()

    def _serve(self, session: ChildSession, catalogue: Catalogue) -> None:
        self.session = session
        self._become(ChildState.RUNNING)
        self.last_failure = None
        changed = frozenset(kind for kind in Kind if catalogue.of(kind))
        if self.catalogue is not None:
            changed |= catalogue.differences(self.catalogue)
        self.catalogue = catalogue
        self.calls.answered()
        self._end_attempt()
        self._clients.on_connected(self)
        self._on_change(self, changed)

    async def _until_lost(self) -> None:
        """Serve list changes until the connection is lost or the child is to stop."""
        session = self.session
        assert session is not None
        while True:
            await wait_first(self._stopping, session.lost, self._list_changed, timeout=self._until_too_silent())
            if self._stopping.is_set() or session.lost.is_set():
                return
            if self._list_changed.is_set():
                await asyncio.sleep(_CHANGE_QUIET)
                self._list_changed.clear()
                await self._refresh(session)
            else:
                await self._check_health(session)

    async def _listen(self, session: ChildSession, stack: AsyncExitStack) -> None:
        """Begin to hear of list changes, before the lists are read: none in between is missed."""
        is_open = asyncio.Event()
        listening = asyncio.create_task(self._hear(session, is_open), name=f"listen:{self.key}")
        stack.push_async_callback(_ended, listening)
        await wait_first(is_open, timeout=_LISTEN_BOUND)

    async def _hear(self, session: ChildSession, is_open: asyncio.Event) -> None:
        try:
            await session.listen_for_changes(is_open)
        except Exception as error:
            logger.warning("server %r no longer tells when its lists change: %s", self.key, error)
        finally:
            is_open.set()

    async def _check_health(self, session: ChildSession) -> None:
        """Ask a silent, idle child for a sign of life.

        Raises:
            ChildServerError: there was none.
        """
        if self._until_too_silent() > 0:
            return
        try:
            async with asyncio.timeout(HEALTH_DEADLINE):
                await session.probe()
        except TimeoutError:
            reason = f"it gave no sign of life within {HEALTH_DEADLINE:g} s"
            raise ChildServerError(self.key, "runtime", reason) from None
        self.calls.answered()

    def _until_too_silent(self) -> float:
        """Seconds until an idle child is to be asked for a sign of life; those of a busy one begin anew."""
        if self.calls.in_flight:
            return HEALTH_INTERVAL
        return max(0.0, self.calls.last_answer + HEALTH_INTERVAL - time.monotonic())

    async def _refresh(self, session: ChildSession) -> None:
        """List again. What the child says has changed, clients are told, even if it is as it was before."""
        told, self._changed_kinds = self._changed_kinds, frozenset()
        try:
            async with asyncio.timeout(_LIST_DEADLINE):
                catalogue = await self._read(session)
        except (MCPError, TimeoutError) as error:
            logger.warning("server %r changed its lists, but cannot list: %s", self.key, describe(error))
            return
        changed = catalogue.differences(self.catalogue) | told
        self.catalogue = catalogue
        self._on_change(self, changed)

    async def _read(self, session: ChildSession) -> Catalogue:
        self._lists_read += 1
        offered = await read_catalogue(self.key, session, version=self._lists_read, max_tools=self.options.max_tools)
        return self.options.screen(self.key, offered)

    async def _wait_before_retry(self) -> None:
        await wait_first(self._stopping, self._wake, timeout=self.retry_in)
        self._retry_at = None

    def _end_attempt(self) -> None:
        """Let go whoever waits for the present attempt; who comes later waits for the next."""
        self.settled.set()
        self.attempted.set()
        self.attempted = asyncio.Event()

    # State and failures.

    def _become(self, state: ChildState) -> None:
        if state is self.state:
            return
        if not may_become(self.state, state):
            raise AssertionError(f"child {self.key!r}: no transition {self.state} → {state}")
        self.state = state
        self._since = time.monotonic()

    def _fail(self, failure: ChildServerError) -> None:
        now = time.monotonic()
        ran_for = now - self._since if self.state is ChildState.RUNNING else 0.0
        is_renewal = self._may_renew(now)
        self._retry_at = now
        self._wake.clear()
        if not is_renewal:
            self._retry_at += self._backoff.failed(
                now, ran_for=ran_for, random_fraction=random.random(), at_least=failure.pause
            )
        self.last_failure = failure
        self._become(ChildState.FAILED)
        self._end_attempt()
        if is_renewal:
            logger.debug("%s", failure)
            return
        logger.warning("%s", failure)
        if self.catalogue is not None:
            self._on_change(self, frozenset(kind for kind in Kind if self.catalogue.of(kind)))

    def _may_renew(self, now: float) -> bool:
        """Whether the child only needs a new session, which it gets at once and unnoticed by clients; not too often."""
        if self.state is not ChildState.RUNNING or not self._endpoint.has_forgotten_us:
            return False
        if now - self._renewed_at < _RENEWAL_PAUSE:
            return False
        self._renewed_at = now
        return True

    async def explain(self, error: Exception | None) -> ChildServerError:
        """Why the present life ends, in words for the user, while the endpoint still stands as it was found."""
        if isinstance(error, ChildServerError):
            return error
        reason = reason_of(error, self.server, self.options.startup_timeout)
        if self._stopping.is_set():
            return ChildServerError(self.key, self._phase, reason, cause=error)
        return await self._endpoint.explain(self._phase, reason, error)

    # The callers' side.

    async def request(self, method: str, params: Mapping[str, Any], *, owner: Owner | None = None) -> dict[str, Any]:
        """Forward one request to the child; see `children/requests.py`."""
        return await request(self, method, params, owner)

    def bring_forward(self) -> bool:
        """Make the next attempt now, if the child waits for one and may be woken; whether there is one to wait for."""
        is_paused = self._backoff.is_crash_loop or (self.last_failure is not None and self.last_failure.pause > 0)
        if self._stopping.is_set() or is_paused:
            return False
        self._wake.set()
        return True

    @property
    def retry_in(self) -> float | None:
        """Seconds until a failed child is tried again; None when it is not waiting."""
        return None if self._retry_at is None else max(0.0, self._retry_at - time.monotonic())

    @property
    def is_serving(self) -> bool:
        """Whether its components are listed now."""
        return self.state is ChildState.RUNNING

    def status(self) -> ServerStatus:
        """A snapshot for people and programs."""
        catalogue = self.catalogue if self.is_serving and self.catalogue else Catalogue(0)
        return ServerStatus(
            server_key=self.key,
            state=self.state,
            since=time.monotonic() - self._since,
            protocol_version=self.session.protocol_version if self.session else None,
            pid=self._endpoint.pid,
            restarts=max(0, self._starts - 1),
            last_error=self.last_failure.reason if self.last_failure else None,
            auth_error=self.last_failure is not None and self.last_failure.auth_error,
            retry_in=self.retry_in,
            tools=len(catalogue.of(Kind.TOOL)),
            resources=len(catalogue.of(Kind.RESOURCE)),
            templates=len(catalogue.of(Kind.TEMPLATE)),
            prompts=len(catalogue.of(Kind.PROMPT)),
            in_flight=self.calls.in_flight,
            is_cut_off=self.calls.breaker.is_open,
            waiting=self.calls.waiting,
            unanswered=self.calls.unanswered,
            ignored_lines=self._tally.ignored_lines,
            dropped_notifications=self._tally.dropped_notifications,
        )


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
