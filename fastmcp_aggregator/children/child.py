"""One supervised child: one task owns its process, its session, its state and its catalogue.

Theory. `run` is the whole life of a child, a loop of lives: connect and list under the start-up deadline, serve
until the connection is lost, wait with back-off, again. Everything that a life opened is closed in the same task
before the next life begins, so at most one process of a child exists. Requests come from other tasks; they only
look at `session`, which is set exactly while the child is running, and a request to a child that waits for its next
attempt brings that attempt forward. A request is never sent twice.

A child that has been silent and idle for a while is asked for a sign of life; without one, its life ends like after a
crash. A busy child is never asked: its calls have deadlines of their own.

Nothing else changes the state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from typing import Protocol

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.children.calls import Calls
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.connecting import Connecting
from fastmcp_aggregator.children.endpoint import Launch, reason_of
from fastmcp_aggregator.children.health import Health
from fastmcp_aggregator.children.process.process import ChildProcess
from fastmcp_aggregator.children.process.start_slots import StartSlots
from fastmcp_aggregator.children.retry import Retry
from fastmcp_aggregator.children.session.listing import Lists
from fastmcp_aggregator.children.session.ownership import Owner
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.concurrency.waits import wait_first
from fastmcp_aggregator.config import ServerConfig, StdioServer
from fastmcp_aggregator.errors import ChildServerError, Phase
from fastmcp_aggregator.settings.options import ChildOptions
from fastmcp_aggregator.status.server_status import ServerStatus
from fastmcp_aggregator.status.state import ChildState, may_become

logger = logging.getLogger(__name__)


class ChildEvents(Protocol):
    """What children report. Never blocks."""

    def connected(self, child: Child) -> None:
        """It has a new session, which knows nothing of those before it."""

    def changed(self, child: Child, kinds: frozenset[Kind]) -> None:
        """It offers something else of these kinds, or can be used again, or no longer."""

    def retired(self, child: Child) -> None:
        """It is gone from the config, or another has its place, and is being closed."""

    def lists_changed(self, child: Child) -> None:
        """It says that its lists have changed; `changed` follows once they are read, if they have."""

    def resource_updated(self, child: Child, uri: str) -> None:
        """A resource has changed, by the child's URI."""


class Child:
    """One configured MCP server, and our side of it."""

    def __init__(
        self,
        server: ServerConfig,
        options: ChildOptions,
        events: ChildEvents,
        launch: Launch = ChildProcess.spawn,
        profile: ClientProfile | None = None,
        place: Hashable = None,
        start_slots: StartSlots | None = None,
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
        self.past_failure: ChildServerError | None = None
        """The last failure that was noticed, which is kept when the child runs again."""
        self.settled = asyncio.Event()
        """Set when the first start has succeeded or failed."""
        self.attempted = asyncio.Event()
        """Set when the present attempt has succeeded or failed; then there is a new one."""
        self.why_stopped = ""
        self.calls = Calls(self, options)
        self.start_slots = start_slots or StartSlots()
        """Shared with all children of the aggregator."""
        self._awaited = 0
        self._events = events
        self._profile = profile or ClientProfile()
        self._stopping = asyncio.Event()
        self._startup: asyncio.Timeout | None = None
        self._phase: Phase = "startup"
        self._health = Health(server.key, self.calls)
        self._lists = Lists(server.key, options.settings.max_tools_per_child, options.catalogue_filter)
        self._retrying = Retry()
        self._connecting = Connecting(
            server,
            options.endpoint,
            launch,
            self._profile,
            era=options.era,
            version=options.version,
            events=self,
        )
        self._since = time.monotonic()
        self._starts = 0

    # The owner's side.

    async def run(self) -> None:
        """Live until `stop` is called. Never raises because of what the child does."""
        while not self._stopping.is_set():
            if self.state is ChildState.FAILED:
                self._become(ChildState.INITIALIZING)
            await self._live_once()
            if self.state is ChildState.FAILED:
                await self._retrying.wait(self._stopping)
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
        self._connecting.endpoint.kill()

    async def _live_once(self) -> None:
        """One life: come up, serve, and be closed. Ends `failed`, unless the child is to stop."""
        self._starts += 1
        self._phase = "startup"
        self._connecting.begin()
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
        async with self._turn_to_start():
            if self._stopping.is_set():
                raise ChildServerError(self.key, "startup", self.why_stopped)
            try:
                async with asyncio.timeout(self.options.settings.startup_timeout) as self._startup:
                    session = await self._connecting.connect(stack, self._is_reached)
                    await self._lists.listen(session, stack)
                    catalogue = await self._lists.read(session)
            finally:
                self._startup = None
        self._phase = "runtime"
        self._serve(session, catalogue)

    def _turn_to_start(self) -> AbstractAsyncContextManager[None]:
        if not isinstance(self.server, StdioServer):
            return nullcontext()
        return self.start_slots.slot(self, self._stopping, lambda: self._awaited > 0 or self.calls.in_flight > 0)

    def _is_reached(self) -> None:
        self._phase = "initialization"

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
        self._events.connected(self)
        self._events.changed(self, changed)

    async def _until_lost(self) -> None:
        """Serve list changes until the connection is lost or the child is to stop."""
        session = self.session
        assert session is not None
        while True:
            await wait_first(self._stopping, session.lost, self._lists.are_due, timeout=self._health.until_due)
            if self._stopping.is_set() or session.lost.is_set():
                return
            if self._lists.are_due.is_set():
                await self._refresh(session)
            else:
                await self._health.check(session)

    async def _refresh(self, session: ChildSession) -> None:
        if found := await self._lists.read_again(session, self.catalogue):
            self.catalogue, changed = found
            self._events.changed(self, changed)

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
        was_running = self.state is ChildState.RUNNING
        is_renewal = was_running and self._connecting.endpoint.has_forgotten_us and self._retrying.may_renew()
        if not is_renewal:
            ran_for = time.monotonic() - self._since if was_running else 0.0
            has_started = isinstance(self.server, StdioServer) and failure.phase != "startup"
            self._retrying.failed(ran_for=ran_for, pause=failure.pause, is_crash=has_started)
        self.last_failure = failure
        self._become(ChildState.FAILED)
        self._end_attempt()
        if is_renewal:  # at once, and unnoticed by clients
            logger.debug("%s", failure)
            return
        self.past_failure = failure
        logger.warning("%s", failure)
        left = self.catalogue or Catalogue(0)
        self._events.changed(self, frozenset(kind for kind in Kind if left.of(kind)))

    async def explain(self, error: Exception | None) -> ChildServerError:
        """Why the present life ends, in words for the user, while the endpoint still stands as it was found."""
        if isinstance(error, ChildServerError):
            return error
        reason = reason_of(error, self.server, self.options.settings.startup_timeout)
        if self._stopping.is_set():
            return ChildServerError(self.key, self._phase, reason, cause=error)
        return await self._connecting.endpoint.explain(self._phase, reason, error)

    # What its session reports.

    @property
    def sole_client(self) -> Owner | None:
        """The only client, if it can be asked at any time."""
        return self._profile.sole_client

    def lists_changed(self, kinds: frozenset[Kind]) -> None:
        """The child says that its lists of these kinds have changed: they are read again, and then compared."""
        self._lists.have_changed(kinds)
        self._events.lists_changed(self)

    def resource_updated(self, uri: str) -> None:
        """A resource has changed, by the child's URI."""
        self._events.resource_updated(self, uri)

    # The callers' side.

    async def until_settled(self) -> None:
        """Wait until the first start has succeeded or failed. It goes before those that nobody waits for."""
        self._awaited += 1
        try:
            await self.settled.wait()
        finally:
            self._awaited -= 1

    def bring_forward(self) -> bool:
        """Make the next attempt now, if the child waits for one and may be woken; whether there is one to wait for."""
        return not self._stopping.is_set() and self._retrying.bring_forward()

    def rest(self) -> None:
        """Do not try again by itself once it has failed; a request still has it tried again."""
        self._retrying.rest()

    def list_again(self) -> None:
        """Look whether a running child offers something else than before; clients are told only if it does."""
        if self.session is not None:
            self._lists.are_due.set()

    @property
    def retry_in(self) -> float | None:
        """Seconds until a failed child is tried again; None when it is not waiting."""
        return self._retrying.remaining

    @property
    def retry_for_call_in(self) -> float | None:
        """Seconds after which a call to a failed child has it tried, or it is tried by itself; None: as `retry_in`."""
        return self._retrying.before_call

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
            pid=self._connecting.endpoint.pid,
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
            ignored_lines=self._connecting.tally.ignored_lines,
            dropped_notifications=self._connecting.tally.dropped_notifications,
            public_error=self.last_failure.public_reason if self.last_failure else None,
            era=self.session.era if self.session else None,
        )
