"""Additional instances of a child, beside the first one, which the lists come from.

- A server that has one for each client session (`isolation/decision.py`) has it started when it is first used and
  closed with the session, so that clients share no state and every message has one caller. A modern client has no
  session over HTTP: its principal stands for one, and the instance is closed when it has not been used
  for a while; a client that has not authenticated gets one for each request.
- One that has one for each folder has it shared by the clients of one workspace (`workspaces.py`). Such an instance is
  told the roots that it was made for, and no others; it is closed when its clients are gone. A client whose roots
  change is in another workspace from its next request on. One whose workspace is unknown has one for its session.
- A server that speaks both eras asks legacy clients in ways that a modern connection has no room for. For legacy
  clients that can be asked it has one more, held in their era; other clients lose nothing. The other way round, what
  a server does for legacy clients only in a task (SEP-2663) needs a modern connection.

An instance with an open task is not closed before its session is over, or the task, unless it gives way.

Callers share the instances of a child. As sessions may last for days, a caller for whom none is left does not wait for
their ends: one of a caller that has more gives way, that which has been unused for longest. Only requests in flight
protect it, for these have deadlines. What has a subscription or an open task, for which its client need do nothing, is
just the last to go. Its session and its subscribers are told.

Where one client is all there is, on stdio, the first instance is its own already. All are supervised alike.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Hashable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Protocol
from weakref import WeakSet

from msgspec import Raw

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.process.on_demand import stops_when_idle
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.children.supervisor import Supervisor
from fastmcp_aggregator.concurrency.limiter import FairShare, Holder, Usage
from fastmcp_aggregator.config import ServerConfig
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.isolation.decision import Shown
from fastmcp_aggregator.isolation.folder import depends_on_folder, in_folder
from fastmcp_aggregator.protocol.json_rpc import Params
from fastmcp_aggregator.relay.instances.open_tasks import OpenTasks
from fastmcp_aggregator.relay.instances.workspaces import Workspace, Workspaces
from fastmcp_aggregator.settings.options import ChildOptions

_LEGACY, _MODERN = "legacy", "modern"
_NOT_IN_GROUP = "the group does not have it any more"


class InstanceEvents(Protocol):
    """The events that instances report. Never blocks."""

    def client_joined(self) -> None:
        """One that clients share has one more."""

    def instance_gave_way(self, instance: Child, principal: Principal, taker: Principal) -> None:
        """One was closed, whose it was, and who needed one."""

    def listed_to(self, child: Child, principal: Hashable, kinds: frozenset[Kind]) -> None:
        """A child lists something else to one principal alone."""

    def is_subscribed(self, instance: Child) -> bool:
        """True if somebody has subscribed to a resource of it."""
        ...

    def is_shown(self, child: Child, session: Hashable) -> bool:
        """True if a session may use a server, as far as it has one view."""
        ...


class Instances:
    """All additional instances. Owned by one `Runtime`."""

    def __init__(self, supervisor: Supervisor, events: InstanceEvents, *, limit: int) -> None:
        self._supervisor = supervisor
        self._events = events
        self._limit = limit
        self.workspaces = Workspaces(self._left, events.client_joined)
        self.tasks = OpenTasks()
        self._of: dict[Child, dict[Hashable, Child]] = {}
        self._idle: dict[Child, float] = {}
        """Seconds without a request after which an instance is closed, for those that end so."""
        self._timers: dict[Child, asyncio.TimerHandle] = {}
        """Timers that close unused instances."""
        self._shares: dict[Child, FairShare] = {}
        """The shares of holders in the instances of each child."""
        self._holders: dict[Child, tuple[FairShare, Holder, Principal]] = {}
        """The holder and the principal of each instance, until it is closed."""
        self._given_up: set[tuple[Child, Hashable]] = set()
        """The sessions and workspaces whose clients have yet to be told that they have no instance any more."""
        self._serving: Counter[Child] = Counter()
        """How many requests each serves, from their beginning to their end here."""
        self._modern_only: WeakSet[ChildSession | Child] = WeakSet()
        """Sessions of children, and children while they slept, that turned out to speak no legacy era."""

    @asynccontextmanager
    async def serving(self, child: Child, caller: Caller) -> AsyncIterator[Child]:
        """`instance_for` one request, released afterwards.

        Raises:
            ChildServerError: there are too many.
        """
        instance = await self.instance_for(child, caller)
        self._serving[instance] += 1
        try:
            yield instance
        finally:
            self._serving[instance] -= 1
            if not self._serving[instance]:
                del self._serving[instance]
            if instance is not child:
                self.release(instance)

    async def instance_for(self, child: Child, caller: Caller) -> Child:
        """The child, or the instance of it, for a caller.

        Raises:
            ChildServerError: there are too many.
        """
        if self.is_shared(child, caller):
            return child
        if not child.evidence.is_shared:
            return await self._own_of(child, caller)
        return await self._in_legacy_era(child)

    def look_at_paths(self, child: Child, caller: Caller, params: Params) -> None:
        """See if this call needs its own client's instance: the shared one runs in the folder of one client."""
        is_shared = child.evidence.is_shared and not child.context.profile.is_single
        if not is_shared or caller.working_folder is None or "arguments" not in params:
            return
        arguments = params["arguments"]
        text = arguments if isinstance(arguments, Raw) else json.dumps(arguments).encode()
        if depends_on_folder(child.server, bytes(text)):
            child.evidence.show(Shown.RELATIVE_PATHS)

    def is_shared(self, child: Child, caller: Caller) -> bool:
        """True if the caller has no other instance than everybody."""
        if child.context.profile.is_single:
            return child.evidence.is_shared or not child.options.endpoint.access.is_per_caller
        return child.evidence.is_shared and not self._needs_legacy_era(child, caller)

    def __iter__(self) -> Iterator[tuple[Child, Collection[Hashable] | None]]:
        """All of them, each with the client sessions that it is for; None: for all clients of an era."""
        for child, of_child in self._of.items():
            for name, instance in of_child.items():
                if isinstance(name, Workspace):
                    yield instance, self.workspaces.sessions_at(child.key, name)
                else:
                    yield instance, None if name in (_LEGACY, _MODERN) else [name]

    def usage(self) -> dict[str, Usage]:
        """How much is taken of the instances of each child of which there were any, by server key."""
        return {child.key: share.usage() for child, share in self._shares.items()}

    def has_any(self, child: Child) -> bool:
        return bool(self._of.get(child))

    def release(self, instance: Child) -> None:
        """A request is over: close an instance without a session once it has been idle."""
        idle = self._idle_time(instance)
        if idle is None or self._is_busy(instance):
            return
        idle = max(idle, self.tasks.held_for(instance))
        if not idle:
            self._close(instance)
            return
        if instance in self._timers:
            self._timers[instance].cancel()
        # Without the present context, or each timer would hold a request, with its connection, for as long.
        loop, last = asyncio.get_running_loop(), instance.calls.last_used
        self._timers[instance] = loop.call_later(
            idle, self._close_if_unused_since, instance, last, context=contextvars.Context()
        )

    async def taking_tasks(self, child: Child, first: Child) -> Child | None:
        """A child, or its first instance, or one more, whose connection is modern and so has tasks; None: none has."""
        if child.session is not None and child.session.era == _MODERN:
            return child
        if not self._is_for_all(first):
            return None
        if first.session is not None and first.session.era == _MODERN:
            return first
        instance = self._of.setdefault(first, {}).get(_MODERN)
        if instance is None:
            instance = self._begin(first, _MODERN, ClientProfile(), _MODERN)
        await instance.until_settled()
        return instance if instance.is_serving else None

    def _is_for_all(self, first: Child) -> bool:
        """True if the first instance may be asked for any caller."""
        if first.options.endpoint.access.is_per_caller:
            return False
        return first.evidence.is_shared or first.context.profile.is_single

    def end(self, instance: Child) -> None:
        """Close an instance whose session may not use the server any more; what it still says is dropped."""
        instance.context.profile.sole_client = None
        self._close(instance, _NOT_IN_GROUP)

    def drop(self, child: Child) -> None:
        """Close the instances of a child that is gone from the config."""
        self.workspaces.drop(child)
        self.tasks.forget(child)
        for instance in list(self._of.pop(child, {}).values()):
            self._forget(instance)
            self._supervisor.retire(instance, "its entry in the config was changed or removed")
        self._shares.pop(child, None)
        self._given_up = {given_up for given_up in self._given_up if given_up[0] is not child}

    def _forget(self, instance: Child) -> None:
        self._idle.pop(instance, None)
        if instance in self._holders:
            share, holder, _ = self._holders.pop(instance)
            share.release(holder)
        self.tasks.forget(instance)
        if instance in self._timers:
            self._timers.pop(instance).cancel()

    def _idle_time(self, instance: Child) -> float | None:
        """Seconds without a request after which it is closed; None: it ends with its session."""
        workspace = name_of(instance)
        if not isinstance(workspace, Workspace):
            return self._idle.get(instance)
        if self.workspaces.sessions_at(instance.key, workspace):
            return None
        return instance.context.timings.session_idle if self._events.is_subscribed(instance) else 0.0

    def _needs_legacy_era(self, child: Child, caller: Caller) -> bool:
        """True if the child could ask the caller more if it spoke the caller's era, which it may."""
        if caller.is_modern or child.options.era != "auto":
            return False
        era = child.era_asleep if child.session is None else child.session.era
        return era == _MODERN and (child.session or child) not in self._modern_only and caller.can_be_asked

    async def _own_of(self, child: Child, caller: Caller) -> Child:
        """The instance of the caller's account, workspace or session."""
        if child.options.endpoint.access.is_per_caller:
            return self._of_account(child, caller)
        if child.evidence.decision.isolation == "directory":
            workspace = await self.workspaces.of(child, caller, needs_legacy_era=self._needs_legacy_era(child, caller))
            if workspace is not None:
                return self._at(workspace, child, caller)
        return self._isolated(child, caller)

    def _at(self, workspace: Workspace, child: Child, caller: Caller) -> Child:
        known = self._of.setdefault(child, {})
        if workspace not in known:
            self._tell_of(child, workspace)
            roots = None if workspace.roots is None else workspace.roots.as_result()
            profile = ClientProfile.of_folder(roots, is_legacy=workspace.needs_legacy_era)
            self._begin_for(child, workspace, caller, profile)
        return known[workspace]

    def _left(self) -> None:
        """A client is no longer where it was: close the instances of empty workspaces."""
        for instance, sessions in list(self):
            if isinstance(name_of(instance), Workspace) and not sessions:
                self.release(instance)
        for child, name in list(self._given_up):
            if isinstance(name, Workspace) and not self.workspaces.sessions_at(child.key, name):
                self._given_up.discard((child, name))

    def renew(self, child: Child, account: Hashable) -> None:
        """Close the instance of an account, which was connected with other tokens than it has now."""
        instance = self._of.get(child, {}).get(account)
        if instance is not None:
            self._close(instance, "its account has other tokens now")

    def _of_account(self, child: Child, caller: Caller) -> Child:
        """The instance with the caller's own account, for all its sessions."""
        account = caller.account
        if account is None:
            reason = "it is called with each caller's own account, so callers have to authenticate"
            raise ChildServerError(child.key, "runtime", reason)
        known = self._of.setdefault(child, {})
        if account in known and known[account].is_without_login:
            self._close(known[account])  # the caller may have others by now
        if account not in known:
            self._begin_for(child, account, caller, ClientProfile())
            self._idle[known[account]] = child.context.timings.session_idle
        return known[account]

    def _isolated(self, child: Child, caller: Caller) -> Child:
        session = object() if caller.session is None else caller.session
        known = self._of.setdefault(child, {})
        if session in known:
            return known[session]
        self._tell_of(child, session)
        if not self._events.is_shown(child, session):
            raise ChildServerError(child.key, "runtime", _NOT_IN_GROUP)
        instance = self._begin_for(child, session, caller, caller.profile())
        if not caller.at_end_of_session(lambda: self._session_ended(child, session)):
            self._idle[instance] = 0.0 if caller.session is None else child.context.timings.session_idle
        return instance

    def _begin_for(self, child: Child, name: Hashable, caller: Caller, profile: ClientProfile) -> Child:
        """One more instance, for a caller, in the folder in which its client works.

        Raises:
            ChildServerError: there are too many, or an operator has stopped the server.
        """
        share, holder = self._shares.setdefault(child, FairShare(self._limit)), caller.holder
        if not self._has_room(share, caller):
            share.refused += 1
            reason = (
                f"{share.taken} clients or folders have an instance of their own already, and no more may; "
                "close some, or raise `max_isolated_sessions`"
            )
            raise ChildServerError(child.key, "runtime", reason)
        server = in_folder(child.server, caller.working_folder)
        instance = self._begin(child, name, profile, child.options.era, server, holder)
        share.force_acquire(holder)
        self._holders[instance] = share, holder, caller.principal
        return instance

    def _has_room(self, share: FairShare, caller: Caller) -> bool:
        """True if there is room for one more, also by closing an idle one of a holder that has more."""
        while not share.has_room(caller.holder):
            spare = self._spare(share, share.held(caller.holder) + 1)
            if spare is None:
                return False
            self._give_up(spare, caller.principal)
        return True

    def _spare(self, share: FairShare, fair: int) -> Child | None:
        """Of the holder that has most, the instance needed least; None: none has more than is fair, or all work."""
        spare = [
            instance
            for instance, (of, holder, _) in self._holders.items()
            if of is share and share.held(holder) > fair and not self._is_busy(instance)
        ]
        return min(spare, key=self._by_need, default=None)

    def _by_need(self, instance: Child) -> tuple[int, bool, float]:
        share, holder, _ = self._holders[instance]
        is_kept = self._events.is_subscribed(instance) or self.tasks.held_for(instance) > 0
        return -share.held(holder), is_kept, instance.calls.last_used

    def _is_busy(self, instance: Child) -> bool:
        return bool(instance.calls.in_flight or self._serving[instance])

    def _give_up(self, instance: Child, taker: Principal) -> None:
        """Close it. Who would have kept it is told with the next call, and subscribers at once."""
        name = name_of(instance)
        _, _, principal = self._holders[instance]
        if self._idle_time(instance) is None:
            self._given_up |= {(child, name) for child, of_child in self._of.items() if of_child.get(name) is instance}
        self._close(instance, "another caller needed an instance")
        self._events.instance_gave_way(instance, principal, taker)

    def _tell_of(self, child: Child, name: Hashable) -> None:
        """Tell once of an instance that was given up.

        Raises:
            ChildServerError: it was.
        """
        if (child, name) in self._given_up:
            self._given_up.discard((child, name))
            reason = (
                "another caller needed an instance, and this one, which had been unused for longest, was closed with "
                "what it kept; the next call begins anew"
            )
            raise ChildServerError(child.key, "runtime", reason)

    def _session_ended(self, child: Child, session: Hashable) -> None:
        self._given_up.discard((child, session))
        if instance := self._of.get(child, {}).get(session):
            self._close(instance)

    async def _in_legacy_era(self, child: Child) -> Child:
        known = child.session or child
        instance = self._of.setdefault(child, {}).get(_LEGACY)
        if instance is None:
            instance = self._begin(child, _LEGACY, child.context.profile, _LEGACY)
            if child.catalogue is not None and stops_when_idle(child.server, child.options, child.catalogue):
                self._idle[instance] = child.options.settings.idle_timeout
        await instance.until_settled()
        if instance.catalogue is not None:  # it has been up
            return instance
        if self._of.get(child, {}).get(_LEGACY) is instance:
            self._modern_only.add(known)
            self._close(instance)
        return child if known in self._modern_only else instance

    def _begin(
        self,
        child: Child,
        name: Hashable,
        profile: ClientProfile,
        era: str,
        server: ServerConfig | None = None,
        holder: Holder = None,
    ) -> Child:
        if child.why_stopped:
            raise ChildServerError(child.key, "runtime", f"it is unavailable: {child.why_stopped}")
        instance = Child(
            server or child.server,
            _options_for(child.options, era, name),
            replace(child.context, profile=profile),
            instance_id=(child.key, name),
            evidence=child.evidence,
            holder=holder,
        )
        self._of[child][name] = instance
        self._supervisor.begin(instance)
        return instance

    def _close_if_unused_since(self, instance: Child, last_used: float) -> None:
        self._timers.pop(instance, None)
        is_used = instance.calls.last_used != last_used or self._is_busy(instance)
        is_kept = isinstance(name_of(instance), Workspace) and self._idle_time(instance) != 0.0
        if is_used or is_kept or self._events.is_subscribed(instance):
            self.release(instance)
        else:
            self._close(instance, "it was idle")

    def _close(self, instance: Child, why: str = "its client session is over") -> None:
        for of_child in self._of.values():
            for name in [name for name, other in of_child.items() if other is instance]:
                del of_child[name]
                self._forget(instance)
                self._supervisor.retire(instance, why)


def _options_for(options: ChildOptions, era: str, name: Hashable) -> ChildOptions:
    """The options of an instance of this name, which is its principal where each has an account of its own."""
    access = options.endpoint.access
    if access.is_per_caller:
        options = replace(options, endpoint=replace(options.endpoint, access=replace(access, principal=str(name))))
    return replace(options, era=era)


def name_of(instance: Child) -> Hashable:
    """The name of an instance among those of its child: the workspace, account, session or era that it is for."""
    _, name = instance.instance_id  # type: ignore[misc]
    return name  # type: ignore[no-any-return, has-type]
