"""One supervised child: one task owns its process, its session, its state and its catalogue.

Theory. `run` is a loop: connect and list under the start-up deadline, serve until the connection is lost, back off,
again. Everything that a connection opened is closed in the same task before the next attempt, so at most one process
of a child exists. Requests come from other tasks; they only look at `session`, which is set exactly while the child is
running, and a request to a child that sleeps, or waits for its next attempt, triggers that attempt.

A child that has been silent and idle for a while is pinged; if it does not answer, that counts as a lost connection.
One that may be started on demand and has not been used for longer is put to sleep.

Nothing else changes the state.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Hashable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from fastmcp_aggregator.catalogue.login import login_catalogue
from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.children.calls import Calls
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.connecting import Connecting
from fastmcp_aggregator.children.endpoint import NewEndpoint, reason_of
from fastmcp_aggregator.children.health import Health
from fastmcp_aggregator.children.offer import Offer
from fastmcp_aggregator.children.process.on_demand import stops_when_idle
from fastmcp_aggregator.children.process.start_slots import Start, StartSlots
from fastmcp_aggregator.children.process.stderr import NO_ROOTS
from fastmcp_aggregator.children.retry import Retry
from fastmcp_aggregator.children.session.in_flight import AnyCaller
from fastmcp_aggregator.children.session.listing import Lists
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.concurrency.waits import wait_first
from fastmcp_aggregator.config import ServerConfig, StdioServer
from fastmcp_aggregator.errors import ChildServerError, Phase
from fastmcp_aggregator.isolation.decision import Shown
from fastmcp_aggregator.isolation.evidence import Evidence
from fastmcp_aggregator.settings.options import ChildOptions
from fastmcp_aggregator.status.server_status import TRANSITIONS, ChildState, ServerStatus

logger = logging.getLogger(__name__)


class ChildEvents(Protocol):
    """The events that children report. Never blocks."""

    def connected(self, child: Child) -> None:
        """The child has a new session, without the state of earlier ones."""

    def changed(self, child: Child, kinds: frozenset[Kind]) -> None:
        """The child offers something else of these kinds, or is available again, or no longer."""

    def retired(self, child: Child) -> None:
        """The child is gone from the config, or was replaced, and is being closed."""

    def lists_changed(self, child: Child) -> None:
        """The child has sent `list_changed`; `changed` follows once the lists are read."""

    def resource_updated(self, child: Child, uri: str) -> None:
        """A resource has changed, by the child's URI."""

    def question_refused(self, child: Child, method: str) -> None:
        """A question of the child was refused, because its caller is unknown."""

    def is_needed(self, child: Child) -> bool:
        """True if it has to run though it has no request."""
        ...


@dataclass(frozen=True, slots=True)
class ChildContext:
    """The parts that all children of one run share."""

    events: ChildEvents
    profile: ClientProfile
    new_endpoint: NewEndpoint
    timings: Timings
    start_slots: StartSlots
    """Start slots of processes."""
    connect_slots: StartSlots
    """Start slots of remote servers."""
    catalogues: CatalogueStore | None = None
    """The store of their catalogues for the next run."""


class Child:
    """One configured MCP server, and our side of it."""

    def __init__(
        self,
        server: ServerConfig,
        options: ChildOptions,
        context: ChildContext,
        instance_id: Hashable = None,
        evidence: Evidence | None = None,
        holder: Hashable = None,
    ) -> None:
        """An instance has its own `instance_id`, and the evidence of its child. `holder` is its caller, if any."""
        self.server = server
        self.key = server.key
        self.instance_id = server.key if instance_id is None else instance_id
        """Identifies the child and its successors; each further instance of a child has its own."""
        self.options = options
        self.context = context
        self.state = ChildState.INITIALIZING
        self.session: ChildSession | None = None
        self.last_failure: ChildServerError | None = None
        self.past_failure: ChildServerError | None = None
        """The last failure that clients saw, kept when the child runs again."""
        self.settled = asyncio.Event()
        """Set when the first start has succeeded or failed."""
        self.attempted = asyncio.Event()
        """Set when the present attempt has succeeded or failed, and then replaced."""
        self.is_waking = False
        """True while it starts because a request came while it slept."""
        self.why_stopped = ""
        self.stands_for_instances = instance_id is None and options.endpoint.access.lists_per_caller
        """True if it is never connected itself: each caller sees the lists of its own account, and calls with it."""
        store = context.catalogues if instance_id is None and not self.stands_for_instances else None
        self.offer = Offer(server, options, context.profile, store, partial(context.events.changed, self))
        if self.stands_for_instances:
            self.offer.stand(_login_catalogue_of(server, options))
        self.evidence = evidence or Evidence(server, options, self.offer.shown, self.offer.keep_shown)
        """The evidence that it has shown, and the clients of its instances."""
        self.calls = Calls(self, options, context.timings)
        self._clock = context.timings.clock
        self._slots = context.start_slots if isinstance(server, StdioServer) else context.connect_slots
        self._awaited = 0
        self._holder = holder
        self._events = context.events
        self._stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._startup: asyncio.Timeout | None = None
        self._phase: Phase = "startup"
        self._health = Health(server.key, self.calls, context.timings)
        max_tools, catalogue_filter = options.settings.max_tools_per_child, options.catalogue_filter
        pace = {"settle": context.timings.change_settle, "interval": context.timings.change_interval}
        self._lists = Lists(server.key, max_tools, catalogue_filter, **pace)
        self._retry = Retry(context.timings)
        self._connecting = Connecting(
            server.key,
            partial(context.new_endpoint, server, options.endpoint),
            context.profile,
            era=options.era,
            version=options.version,
            client_timeout=context.timings.client_timeout,
            events=self,
        )
        self._since = self._clock()
        self._roots_told: float | None = None
        """When it was last told roots since its present start."""
        self._restarts = 0

    @property
    def waits_for_client(self) -> bool:
        """True if its start waits for the capabilities of the first client."""
        return self.context.profile.is_awaited

    # The owner's side.

    async def run(self) -> None:
        """Supervise the child until `stop` is called. Never raises because of what the child does."""
        if self.offer.starts_asleep:
            self._become(ChildState.SLEEPING)
        while not self._stopping.is_set():
            if self.state is ChildState.SLEEPING:
                await self._until_woken()
            if self._stopping.is_set():
                break
            self._become(ChildState.INITIALIZING)
            await self._connect_once()
            if self.state is ChildState.FAILED:
                await self._retry.wait(self._stopping)
                self._restarts += 1
        self.offer.stay()
        self._end_attempt()
        self._become(ChildState.STOPPED)

    def stop(self, why: str = "it is stopped with the aggregator") -> None:
        """Ask `run` to end: it closes the child gracefully and returns. Calls meanwhile fail with `why`."""
        if self._stopping.is_set():
            return
        self.why_stopped = why
        self._stopping.set()
        if self._startup is not None:
            self._startup.reschedule(asyncio.get_running_loop().time())

    def kill(self) -> None:
        self._connecting.endpoint.kill()

    async def _connect_once(self) -> None:
        """Connect, serve, and close. Ends `failed` or `sleeping`, unless the child is to stop."""
        self._phase, self._roots_told = "startup", None
        self._connecting.begin()
        try:
            async with AsyncExitStack() as stack:
                failure = await self._serve_until_lost(stack)
                self.session = None
                if self._stopping.is_set():
                    pass
                elif failure is None:
                    self._fall_asleep()
                else:
                    self._fail(failure)
        except Exception as error:
            logger.debug("closing server %r raised %r", self.key, error)

    async def _serve_until_lost(self, stack: AsyncExitStack) -> ChildServerError | None:
        """Connect and serve; returns why that ended, None: the child is not needed."""
        try:
            await self._connect(stack)
            if await self._until_lost():
                return None
        except Exception as error:
            return await self.explain(error)
        return await self.explain(None)

    async def _connect(self, stack: AsyncExitStack) -> None:
        async with self._start_slot():
            if self._stopping.is_set():
                raise ChildServerError(self.key, "startup", self.why_stopped)
            try:
                async with asyncio.timeout(self.options.startup_timeout) as self._startup:
                    session = await self._connecting.connect(stack, self._opened)
                    await self._lists.listen(session, stack)
                    catalogue = await self._lists.read(session)
                    if self.offer.is_changed_by(catalogue):
                        catalogue = await self._lists.read_late(session, catalogue)
                    await self._until_roots_are_taken_up()
            finally:
                self._startup = None
        self._phase = "runtime"
        self._serve(session, catalogue)
        await asyncio.sleep(0)  # the requests that have waited for it go first
        self._keep(session)

    async def _until_roots_are_taken_up(self) -> None:
        """A call that came meanwhile would be served with whatever the server does without roots."""
        if self._roots_told is not None:
            await asyncio.sleep(self._roots_told + self.context.timings.roots_settle - self._clock())

    def _start_slot(self) -> AbstractAsyncContextManager[None]:
        return self._slots.slot(self, self._stopping, Start(self.key, self._is_awaited, self._start_holder))

    def _is_awaited(self) -> bool:
        return self._awaited > 0 or self.calls.in_flight > 0

    def _start_holder(self) -> Hashable:
        """The holder that a start counts for: its instance's, or the one that calls it most."""
        return self.calls.largest_holder if self._holder is None else self._holder

    def _opened(self) -> None:
        self._phase = "initialization"

    def _serve(self, session: ChildSession, catalogue: Catalogue) -> None:
        self.session = session
        self._become(ChildState.RUNNING)
        self.last_failure = None
        self.evidence.is_up()
        changed = self.offer.served(catalogue)
        self.calls.answered()
        self.calls.last_used = self._clock()
        self._end_attempt()
        self._events.connected(self)
        self._events.changed(self, changed)

    async def _until_lost(self) -> bool:
        """Read changed lists and check the health until the connection is lost or the child is to stop, or to sleep;
        whether it is to sleep.
        """
        session = self.session
        assert session is not None
        while True:
            until_due = min(self._health.until_due, self._until_idle)
            await wait_first(self._stopping, session.lost, self._lists.are_due, timeout=until_due)
            if self._stopping.is_set() or session.lost.is_set():
                return False
            if self._lists.are_due.is_set():
                await wait_first(self._stopping, session.lost, timeout=self._lists.pause())
                if not self._stopping.is_set() and not session.lost.is_set():
                    await self._refresh(session)
            elif self._until_idle <= 0:
                return True
            else:
                await self._health.check(session)

    async def _refresh(self, session: ChildSession) -> None:
        if found := await self._lists.read_again(session):
            catalogue, told = found
            self._events.changed(self, self.offer.read(catalogue) | told)
            self._keep(session)

    def _keep(self, session: ChildSession) -> None:
        self.offer.keep(self._connecting.client_kind, session.protocol_version, session.era)

    @property
    def _until_idle(self) -> float:
        """Seconds until the child is to sleep, if it is not used meanwhile; infinite for one that is to run."""
        idle, catalogue = self.options.settings.idle_timeout, self.catalogue
        is_of_one = self.instance_id != self.key and not self.context.profile.is_of_folder
        if is_of_one or catalogue is None or not self._stops_when_idle(catalogue):
            return math.inf
        is_used = self.calls.in_flight or self.calls.waiting or self._awaited
        if is_used or self._events.is_needed(self):
            return idle
        return self.context.timings.until(self.calls.last_used + idle)

    def _stops_when_idle(self, catalogue: Catalogue) -> bool:
        is_first_of_several = self.instance_id == self.key and not self.context.profile.is_single
        is_called = self.evidence.is_shared or not is_first_of_several
        return stops_when_idle(self.server, self.options, catalogue, is_called=is_called)

    def _fall_asleep(self) -> None:
        self._woken.clear()
        self._become(ChildState.SLEEPING)
        self._end_attempt()

    async def _until_woken(self) -> None:
        """Wait for a request, or, before the first client has said what it can do, until it turns out that it
        is unknown what the child offers such clients.
        """
        if self.context.profile.is_awaited:
            await wait_first(self._stopping, self._woken, self.context.profile.known)
        if self.catalogue is not None:
            self._end_attempt()
            await wait_first(self._stopping, self._woken)

    def _end_attempt(self) -> None:
        """Wake those that wait for the present attempt; later ones wait for the next."""
        self.is_waking = self._woken.is_set() and self.state is ChildState.SLEEPING
        self.settled.set()
        self.attempted.set()
        self.attempted = asyncio.Event()

    # State and failures.

    def _become(self, state: ChildState) -> None:
        if state is self.state:
            return
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"child {self.key!r}: no transition {self.state} → {state}")
        self.state = state
        self._since = self._clock()

    def _fail(self, failure: ChildServerError) -> None:
        was_running = self.state is ChildState.RUNNING
        is_renewal = was_running and self._connecting.endpoint.session_expired and self._retry.may_renew()
        if not is_renewal:
            ran_for = self._clock() - self._since if was_running else 0.0
            has_started = isinstance(self.server, StdioServer) and failure.phase != "startup"
            self._retry.failed(ran_for=ran_for, pause=failure.pause, is_crash=has_started)
        self.last_failure = failure
        self._become(ChildState.FAILED)
        self._end_attempt()
        if is_renewal:  # immediate, and invisible to clients
            logger.debug("%s", failure)
            return
        self.past_failure = failure
        logger.warning("%s", failure.for_log())
        self.offer.leave_soon()

    async def explain(self, error: Exception | None) -> ChildServerError:
        """Why the connection ends, for users; to be asked before the endpoint is closed."""
        if isinstance(error, ChildServerError):
            return error
        reason = reason_of(error, self.options.startup_timeout)
        if self._stopping.is_set():
            return ChildServerError(self.key, self._phase, reason, cause=error)
        return await self._connecting.endpoint.explain(self._phase, reason, error)

    # What its session reports.

    @property
    def sole_client(self) -> AnyCaller | None:
        """The only client, if it can be asked at any time."""
        return self.context.profile.sole_client

    def roots(self) -> Mapping[str, Any] | None:
        """The answer to its request for roots; None: the client is asked. It has shown that it asks for them.

        Raises:
            MCPError: it has several clients, and may not know the roots of one of them.
        """
        self.evidence.show(Shown.ASKS_FOR_ROOTS)
        profile = self.context.profile
        if profile.is_nobody:
            return {"roots": []}
        if profile.is_single or self.options.settings.isolation == "shared":
            return None
        if profile.roots is None:
            raise MCPError(INVALID_REQUEST, NO_ROOTS)
        self._roots_told = self._clock()
        return profile.roots

    def lists_changed(self, kinds: frozenset[Kind]) -> None:
        """Schedule the lists of these kinds to be read again."""
        self._lists.have_changed(kinds)
        self._events.lists_changed(self)

    def resource_updated(self, uri: str) -> None:
        self._events.resource_updated(self, uri)

    def question_refused(self, method: str) -> None:
        self._events.question_refused(self, method)

    # The callers' side.

    async def until_settled(self) -> None:
        """Wait until the first start has succeeded or failed, which gets priority meanwhile."""
        self._awaited += 1
        self._slots.admit()
        try:
            await self.settled.wait()
        finally:
            self._awaited -= 1

    async def until_awake(self) -> None:
        """Wait while it is being started because it was called while it slept; that start gets priority."""
        self._awaited += 1
        self._slots.admit()
        try:
            while self.is_waking:
                await self.attempted.wait()
        finally:
            self._awaited -= 1

    def wake(self) -> None:
        if self.stands_for_instances:
            return
        if self.state is ChildState.SLEEPING and not self._stopping.is_set():
            self.is_waking = True
            self._woken.set()

    def trigger_retry(self) -> bool:
        return not self._stopping.is_set() and not self.stands_for_instances and self._retry.trigger()

    def start_awake(self) -> None:
        """Do not sleep before the first start. To be called before `run`."""
        if not self.stands_for_instances:
            self._woken.set()

    def start_now(self) -> None:
        """Start it, if it sleeps or waits for its next attempt."""
        self.wake()
        self.trigger_retry()

    def suspend_retries(self) -> None:
        """Do not retry after a failure until a request triggers it."""
        self._retry.suspend()

    def list_again(self) -> None:
        """Schedule the lists of a running child to be read again; clients are told only if they differ."""
        if self.session is not None:
            self._lists.are_due.set()

    @property
    def retry_in(self) -> float | None:
        """Seconds until a failed child is tried again; None when it is not waiting."""
        return self._retry.remaining

    @property
    def retry_for_call_in(self) -> float | None:
        """Seconds until a failed child is tried again, or until a call may trigger that; None: as `retry_in`."""
        return self._retry.before_call

    @property
    def catalogue(self) -> Catalogue | None:
        """The last good catalogue, kept while the child is down."""
        return self.offer.catalogue

    @property
    def is_listed(self) -> bool:
        return self.offer.is_listed

    @property
    def era_asleep(self) -> str | None:
        """The era of its session before it slept; None: it does not sleep, or that is not known."""
        return self.offer.era if self.state is ChildState.SLEEPING or self.is_waking else None

    @property
    def is_serving(self) -> bool:
        return self.state is ChildState.RUNNING

    @property
    def is_without_login(self) -> bool:
        """True if it failed because a person has to log in."""
        return self.last_failure is not None and self.last_failure.login_needed

    @property
    def _is_login_needed(self) -> bool:
        """True if a person has to log in, also while it still runs with its old credentials."""
        return self.is_without_login or self._connecting.endpoint.why_login_needed is not None

    def stderr(self, lines: int) -> tuple[str, ...]:
        """The last lines that its process has written to stderr, oldest first, without secrets."""
        written = self._connecting.endpoint.stderr(lines)
        return written or (self.past_failure.stderr_tail[-lines:] if self.past_failure is not None else ())

    def status(self) -> ServerStatus:
        is_known = self.is_listed and not self.stands_for_instances  # there, what is listed is the way to log in
        catalogue = self.catalogue if is_known and self.catalogue else Catalogue(0)
        return ServerStatus(
            server_key=self.key,
            state=self.state,
            since=self._clock() - self._since,
            protocol_version=self.session.protocol_version if self.session else None,
            pid=self._connecting.endpoint.pid,
            restarts=self._restarts,
            last_error=self.last_failure.reason if self.last_failure else None,
            auth_error=self.last_failure is not None and self.last_failure.auth_error,
            login_needed=self._is_login_needed,
            retry_in=self.retry_in,
            tools=len(catalogue.of(Kind.TOOL)),
            resources=len(catalogue.of(Kind.RESOURCE)),
            templates=len(catalogue.of(Kind.TEMPLATE)),
            prompts=len(catalogue.of(Kind.PROMPT)),
            in_flight=self.calls.in_flight,
            is_cut_off=self.calls.breaker.is_open,
            waiting=self.calls.waiting,
            callers=self.calls.callers,
            unanswered=self.calls.unanswered,
            ignored_lines=self._connecting.counters.ignored_lines,
            dropped_notifications=self._connecting.counters.dropped_notifications,
            dropped_stderr_lines=self._connecting.dropped_stderr_lines,
            public_error=self.last_failure.public_reason if self.last_failure else None,
            era=self.session.era if self.session else None,
            catalogue_since=self.offer.since,
            isolation=self.evidence.decision.isolation,
            isolation_reason=self.evidence.decision.reason,
        )


def _login_catalogue_of(server: ServerConfig, options: ChildOptions) -> Catalogue:
    """The catalogue of a server for callers without an account there."""
    oauth = options.endpoint.access.oauth
    can_log_in = oauth is not None and oauth.account == "caller"
    return login_catalogue(server.key, prefix=options.settings.prefix, can_log_in=can_log_in)
