"""Additional instances of a child, beside the first one, which the lists come from.

- A server with `isolation = "session"` has one for each client session, started when it is first used and closed with
  the session, so that clients share no state and every message has one owner. A modern client has no session over
  HTTP: what it has authenticated as takes its place, and the instance is closed when it has not been used for a
  while; a client that has not authenticated gets one for each request. Their number is bounded.
- A server that speaks both eras asks legacy clients in ways that a modern connection has no room for. For legacy
  clients that can be asked it has one more, held in their era; other clients lose nothing. The other way round, what
  a server does for legacy clients only in a task (SEP-2663) needs a modern connection.

An instance with an open task is not closed before its session is over, or the task.

Where one client is all there is, on stdio, the first instance is its own already. All are supervised alike.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Collection, Hashable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from weakref import WeakSet

from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.children.supervisor import Supervisor
from fastmcp_aggregator.concurrency.limiter import share_of
from fastmcp_aggregator.errors import ChildServerError

_LEGACY, _MODERN = "legacy", "modern"
_TASK_LIFE = 24 * 3600.0
"""Seconds that an instance is kept for a task, at most, after it was last heard of."""
_TASKS = 1000
"""Open tasks of one instance that are kept in mind."""


class Instances:
    """All additional instances. Owned by one `Runtime`."""

    def __init__(self, supervisor: Supervisor, *, limit: int) -> None:
        self._supervisor = supervisor
        self._limit = limit
        self._of: dict[Child, dict[Hashable, Child]] = {}
        self._idle: dict[Child, float] = {}
        """Seconds without a request after which an instance is closed, for those that end so."""
        self._accounts: dict[Child, Hashable] = {}
        """Who has authenticated for the session that an instance is for."""
        self._serving: Counter[Child] = Counter()
        """How many requests each serves, from their beginning to their end here."""
        self._named: dict[str, Child] = {}
        """Those that have made tasks, by what the ids of these tasks say."""
        self._tasks: dict[Child, tuple[str, dict[str, float]]] = {}
        """The name of each of them, and until when it is kept for which tasks, by the loop's clock."""
        self._modern_only: WeakSet[ChildSession] = WeakSet()
        """Sessions of children that turned out to speak no legacy era."""

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
        if child.options.own.isolation == "session":
            return self._isolated(child, caller)
        assert child.session is not None
        return await self._in_legacy_era(child, child.session)

    def is_shared(self, child: Child, caller: Caller) -> bool:
        """Whether the caller has no other instance than everybody."""
        if child.context.profile.is_single:
            return True
        if child.options.own.isolation == "session":
            return False
        if caller.is_modern or child.session is None or child.session.era == _LEGACY:
            return True
        return child.options.era != "auto" or child.session in self._modern_only or not caller.can_be_asked

    def __iter__(self) -> Iterator[tuple[Child, Hashable]]:
        """All of them, each with the client session that it is for; None: for all legacy clients."""
        for of_child in self._of.values():
            yield from ((instance, None if name in (_LEGACY, _MODERN) else name) for name, instance in of_child.items())

    def has_any(self, child: Child) -> bool:
        """Whether the child has additional instances."""
        return bool(self._of.get(child))

    def release(self, instance: Child) -> None:
        """A request is over: close an instance without a session once it has been idle."""
        idle = self._idle.get(instance)
        if idle is None or instance.calls.in_flight or self._serving[instance]:
            return
        idle = max(idle, self._held_for(instance))
        if not idle:
            self._close(instance)
            return
        last = instance.calls.last_answer
        asyncio.get_running_loop().call_later(idle, self._close_if_unused_since, instance, last)

    # Tasks.

    def hold(self, instance: Child, task: str, ttl_ms: float | None, *, over: bool = False) -> str:
        """Keep a child or instance while a task of it is open; what the ids of an instance's tasks name it."""
        if instance not in self._tasks:
            self._tasks[instance] = name, _ = secrets.token_urlsafe(9), {}
            self._named[name] = instance
        name, tasks = self._tasks[instance]
        tasks.pop(task, None)
        if not over:
            life = ttl_ms / 1000 if isinstance(ttl_ms, int | float) else _TASK_LIFE
            tasks[task] = asyncio.get_running_loop().time() + min(life, _TASK_LIFE)
        if len(tasks) > _TASKS:
            del tasks[next(iter(tasks))]
        return name

    def has_open_tasks(self, child: Child) -> bool:
        """Whether a child or instance is kept for a task."""
        return self._held_for(child) > 0

    def named(self, name: str) -> Child | None:
        """The instance that the id of a task names."""
        return self._named.get(name)

    async def taking_tasks(self, child: Child, first: Child) -> Child | None:
        """A child, or its first instance, or one more, whose connection is modern and so has tasks; None: none has."""
        if child.session is not None and child.session.era == _MODERN:
            return child
        if first.options.own.isolation == "session" and not first.context.profile.is_single:
            return None
        if first.session is not None and first.session.era == _MODERN:
            return first
        instance = self._of.setdefault(first, {}).get(_MODERN)
        if instance is None:
            instance = self._begin(first, _MODERN, ClientProfile(), _MODERN)
        await instance.until_settled()
        return instance if instance.is_serving else None

    def _held_for(self, instance: Child) -> float:
        """Seconds for which an instance is kept for its tasks."""
        _, tasks = self._tasks.get(instance, ("", {}))
        now = asyncio.get_running_loop().time()
        for task in [task for task, end in tasks.items() if end <= now]:
            del tasks[task]
        return max(tasks.values(), default=now) - now

    def drop(self, child: Child) -> None:
        """Close the instances of a child that is gone from the config."""
        self._forget(child)
        for instance in list(self._of.pop(child, {}).values()):
            self._idle.pop(instance, None)
            self._accounts.pop(instance, None)
            self._forget(instance)
            self._supervisor.retire(instance, "its entry in the config was changed or removed")

    def _isolated(self, child: Child, caller: Caller) -> Child:
        session = object() if caller.session is None else caller.session
        known = self._of.setdefault(child, {})
        if session in known:
            return known[session]
        if not self._has_room(known.values(), caller.account):
            reason = f"{self._limit} client sessions have an instance of their own already (max_isolated_sessions)"
            raise ChildServerError(child.key, "runtime", reason)
        instance = self._begin(child, session, caller.profile(), child.options.era)
        self._accounts[instance] = caller.account
        if not caller.at_end_of_session(lambda: self._close(instance)):
            self._idle[instance] = 0.0 if caller.session is None else child.context.timings.session_idle
        return instance

    def _has_room(self, known: Collection[Child], account: Hashable) -> bool:
        """A quarter more than the limit is for those who have authenticated and have no instance yet."""
        if len(known) < self._limit or account is None:
            return len(known) < self._limit
        has_none = all(self._accounts.get(instance) != account for instance in known)
        return has_none and len(known) < self._limit + share_of(self._limit)

    async def _in_legacy_era(self, child: Child, session: ChildSession) -> Child:
        instance = self._of.setdefault(child, {}).get(_LEGACY)
        if instance is None:
            instance = self._begin(child, _LEGACY, child.context.profile, _LEGACY)
        await instance.until_settled()
        if instance.is_serving:
            return instance
        if self._of.get(child, {}).get(_LEGACY) is instance:
            self._modern_only.add(session)
            self._close(instance)
        return child if session in self._modern_only else instance

    def _begin(self, child: Child, name: Hashable, profile: ClientProfile, era: str) -> Child:
        instance = Child(
            child.server,
            replace(child.options, era=era),
            replace(child.context, profile=profile),
            place=(child.key, name),
        )
        self._of[child][name] = instance
        self._supervisor.begin(instance)
        return instance

    def _close_if_unused_since(self, instance: Child, last_answer: float) -> None:
        is_used = instance.calls.in_flight or self._serving[instance]
        if instance.calls.last_answer == last_answer and not is_used:
            self._close(instance)

    def _forget(self, instance: Child) -> None:
        name, _ = self._tasks.pop(instance, ("", {}))
        self._named.pop(name, None)

    def _close(self, instance: Child) -> None:
        for of_child in self._of.values():
            for name in [name for name, other in of_child.items() if other is instance]:
                del of_child[name]
                self._idle.pop(instance, None)
                self._accounts.pop(instance, None)
                self._forget(instance)
                self._supervisor.retire(instance, "its client session is over")
