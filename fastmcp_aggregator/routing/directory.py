"""The directory: the current route table of all children, and when it is complete enough to answer from.

The directory is opened with the children of one run and closed with them; a new config exchanges some of them
meanwhile. A change in any child makes the table stale; the next look-up builds a new one.

Where servers list to each caller what its own account sees, each principal has a table of those servers, over that of
the others. It is built when the principal asks, and the least recently used ones are dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError, NameConflictError, StartupError
from fastmcp_aggregator.groups import Group
from fastmcp_aggregator.groups.policy import ToolFilter
from fastmcp_aggregator.isolation.decision import Shown
from fastmcp_aggregator.naming.rules import loose
from fastmcp_aggregator.routing.caller_table import CallerTable
from fastmcp_aggregator.routing.route import Route
from fastmcp_aggregator.routing.section import Section
from fastmcp_aggregator.routing.table import KEY_HEAD, Naming, RouteTable, offered
from fastmcp_aggregator.settings.sections import ToolChanges

_MOST_TABLES = 1000
"""Principals of which a table is kept."""


class CallerLists(Protocol):
    """The lists of each principal, where servers do not list the same to all."""

    def caller(self) -> Hashable:
        """The principal whose request is served now; None: nobody has authenticated, or there is none."""

    def of(self, principal: Hashable) -> Mapping[str, Catalogue]:
        """The known catalogues of these servers, by key, as far as the principal has an account there."""
        ...

    async def known(self, children: Sequence[Child], timeout: float) -> None:
        """Find out what these servers list to the present caller, within so many seconds."""


class Directory:
    """The directory of all components that the children offer."""

    def __init__(
        self,
        naming: Naming,
        *,
        strict: bool,
        ready_wait: float,
        group: Group | None = None,
        changes: ToolChanges = MappingProxyType({}),
        withdrawn: Mapping[str, Collection[str]] = MappingProxyType({}),
        turn: float = 0.005,
    ) -> None:
        """With a group, only what belongs to it is here: for everybody who asks, the rest does not exist.

        `changes` are how single tools are shown; `withdrawn`, which may change, those that are out of service. A table
        is made for `turn` seconds before others have their turn.
        """
        self.turn = turn
        self._withdrawn = withdrawn
        self._changes = changes
        self.naming = naming
        self._group = group
        self._strict = strict
        self._ready_wait = ready_wait
        self._children: Sequence[Child] = ()
        self._keys: frozenset[str] = frozenset()
        """The keys of all servers, in the group or not."""
        self._first: frozenset[Child] = frozenset()
        """Children that a strict start depends on; a child that comes later never ends the program."""
        self.shared: RouteTable | None = None
        """The routes as of now for whoever asks, if they are the same for all, and known."""
        self._table: RouteTable | None = None
        self._sections: dict[str, Section] = {}
        """Sections of the last table, reused by the next one."""
        self._offers: Sequence[object] = ()
        """The offers that the table was made of."""
        self._own: Sequence[Child] = ()
        """Children that list to each caller what its own account sees."""
        self._lists: CallerLists | None = None
        self._own_tables: OrderedDict[Hashable, RouteTable] = OrderedDict()
        self._opened_at: float | None = None
        self.is_ready = False
        """True once a list may have been answered; earlier changes are part of the first list."""
        self._startup_error: StartupError | None = None
        self.invalidated = asyncio.Event()
        """Set at each change of what may be listed; who waits for it clears it."""

    def open(self, children: Sequence[Child], lists: CallerLists | None = None) -> None:
        """Take up the children of a run that is just starting; without `lists` all callers are listed the same."""
        self.close()
        self._lists = lists
        self._take_up(children)
        self._first = frozenset(self._children)
        self._opened_at = time.monotonic()

    def close(self) -> None:
        self._children, self._first, self._opened_at = (), frozenset(), None
        self._own, self._lists = (), None
        self._sections.clear()
        self.forget_tables()
        self.is_ready, self._startup_error = False, None

    def exchange(self, children: Sequence[Child]) -> frozenset[Kind]:
        """Take up the children of a new config; the kinds of which something else is listed from now on."""
        before = self.table.sections()
        self._take_up(children)
        self._first &= frozenset(children)
        self.invalidate()
        if self._startup_error is not None:
            self._startup_error = self._find_startup_error()
        after = self.table.sections()
        return frozenset(kind for kind in Kind if _differ(before, after, kind))

    @property
    def is_restricted(self) -> bool:
        """True if the hub may have more than the group."""
        return self._group is not None and not self._group.is_implied

    @property
    def children(self) -> Sequence[Child]:
        return self._children

    def client_is_known(self) -> None:
        """The only client has said what it can do, and what the children offer may depend on it: wait for them anew."""
        self.invalidate()
        if self._opened_at is not None and not self._strict:
            self._opened_at, self.is_ready = time.monotonic(), False

    def invalidate(self) -> None:
        """A catalogue, or whether it is served, has changed."""
        self.forget_tables()
        self.invalidated.set()

    def child_changed(self, kinds: Collection[Kind]) -> None:
        """A child offers something else of these kinds, or is up, or down: a table goes on while it is still true."""
        if kinds or self._own or self._offers != self._present_offers():
            self.invalidate()

    def forget_tables(self, principal: Hashable = None) -> None:
        """Make tables anew when they are looked at next: all, or that of one principal."""
        if principal is None:
            self.shared = self._table = None
            self._offers = ()
            self._own_tables.clear()
        self._own_tables.pop(principal, None)

    @property
    def table(self) -> RouteTable:
        """The routes as of now, for the present caller."""
        return self.table_of(self._lists.caller() if self._own and self._lists is not None else None)

    @property
    def is_same_for_all(self) -> bool:
        return not self._own

    def table_of(self, principal: Hashable) -> RouteTable:
        if self._table is None:
            shared = [child for child in self._children if child not in self._own] if self._own else self._children
            self._offers = self._present_offers()
            self._table = self._made_table(shared, self._tools({}), self._sections)
            self.shared = None if self._own else self._table
        return self._own_table(self._table, principal) if self._own else self._table

    async def made(self, parts: Callable[[RouteTable], Iterable[object]]) -> RouteTable:
        """The routes as of now, for the present caller, with these parts of them. They are made by and by: others go on
        meanwhile.
        """
        began = time.monotonic()
        while True:
            table = self.table
            for _ in parts(table):
                if time.monotonic() - began > self.turn:
                    await asyncio.sleep(0)
                    began = time.monotonic()
            if table is self.table:
                return table

    def header_schema(self, name: str) -> Mapping[str, Any] | None:
        """The part of a tool's input schema by which the SDK checks `Mcp-Param-*` headers; it walks it at each call.

        Without this function the SDK would list all tools.
        """
        route = self.table.find(Kind.TOOL, name)
        catalogue = None if route is None else self.table.catalogue_of(route.child)
        return None if route is None or catalogue is None else catalogue.header_schemas.get(route.original)

    def searches_tools(self, default: bool) -> bool:
        """True if a search stands for the tools: as the group says, or else by default."""
        own = None if self._group is None else self._group.tool_search
        return default if own is None else own

    async def ready(self) -> None:
        """Wait until lists can be answered: strict, until every child has settled; otherwise at most `ready_wait`.

        Raises:
            StartupError: strict, and the start failed.
        """
        while not self.is_ready:
            opened_at = self._opened_at
            await self._wait_for_children()
            if self._opened_at != opened_at:
                continue  # the client has been known only since
            self.is_ready = True
            if self._strict:
                self._startup_error = self._find_startup_error()
        if self._startup_error is not None:
            raise self._startup_error
        if self._own:
            await self.until_listed()

    @property
    def can_list(self) -> bool:
        """True if `ready` would return at once."""
        return self.is_ready and self._startup_error is None and self.is_same_for_all

    async def route(self, kind: Kind, name: str) -> Route | None:
        """The route of a name; waits for the child that it may belong to, if that is still starting.

        Raises:
            ChildServerError: it can only belong to a child that has never been up, and is not to be had now.
        """
        while (found := self.table.find(kind, name)) is None and (child := self._starting_owner(name)):
            await child.until_settled()
        if found is None and self._own:
            await self.until_listed()
            found = self.table.find(kind, name)
            if found is None and isinstance(table := self.table, CallerTable):
                found = table.unknown(kind, name)
        if found is None and (child := self._unlisted_owner(name)):
            await child.calls.session()
            found = self.table.find(kind, name)
        return found

    async def public_name(self, kind: Kind, name: str) -> str:
        """The public name of a tool or prompt that may be named without its server.

        Raises:
            MCPError: several servers have something of this name, or one that has not been listed may have, or the name
                begins with the key of another.
        """
        if self.table.find(kind, name) is not None:
            return name
        await self.ready()
        owners = self.table.owners(kind, name)
        if len(owners) > 1:
            listed = [f"{key}:{name}" for key in owners if self.table.find(kind, f"{key}:{name}") is not None]
            known = f"; name one of: {', '.join(listed)}" if listed else ""
            raise MCPError(INVALID_PARAMS, f"{name!r} is not unique here{known}")
        if owners and (unlisted := self.table.unlisted(kind)):
            why = f"{name!r} is named without its server, and {unlisted[0]!r} has not been listed"
            raise MCPError(INVALID_PARAMS, f"{why}; name it with its server, as in '{owners[0]}:{name}'")
        if owners and (other := self._claimant(name, owners[0])):
            why = f"{name!r} may mean something of {other!r}"
            raise MCPError(INVALID_PARAMS, f"{why}; name it with its server, as in '{owners[0]}:{name}'")
        return f"{owners[0]}:{name}" if owners else name

    async def owner_of_tool(self, server_key: str, name: str) -> Child | None:
        """The child of a tool that belongs here, by their own names, whether or not it is listed now."""
        if self.is_restricted:
            await self.ready()
        return self.table.owner_of_tool(server_key, name)

    async def locate(self, uri: str) -> tuple[Child, str] | None:
        """The child that serves a public URI, or lists it as a template, and what the child calls it.

        Raises:
            ChildServerError: the child has never been up, and is not to be had now.
        """
        found = self.table.find_uri(uri)
        if found is None:
            await self.ready()
            found = self.table.find_uri(uri)
        if found is not None and found[0].catalogue is None:  # what it lists tells whether the address may be used
            await found[0].calls.session()
            found = self.table.find_uri(uri)
        return found

    def shows(self, uri: str, principal: Hashable = None) -> bool:
        """True if an address leads to a child now, for a principal."""
        return self.table_of(principal).find_uri(uri) is not None

    async def _wait_for_children(self) -> None:
        if self._opened_at is None:
            raise RuntimeError("the aggregator is not running; enter it with `async with`, run it or mount it first")
        remaining = None if self._strict else self._opened_at + self._ready_wait - time.monotonic()
        awaited = [child for child in self._children if self._is_awaited(child)]
        waits = [asyncio.ensure_future(child.settled.wait()) for child in awaited]
        if not waits:
            return
        try:
            await asyncio.wait(waits, timeout=remaining if remaining is None else max(0.0, remaining))
        finally:
            for wait in waits:
                wait.cancel()
        if self._ready_wait:
            for child in awaited:
                if not child.settled.is_set() and not child.waits_for_client:
                    child.evidence.show(Shown.LATE)

    def _is_awaited(self, child: Child) -> bool:
        """True if lists wait for a child: strict, always; else unless they have waited in vain."""
        is_unknown = child.catalogue is None and Shown.LATE not in child.evidence.shown
        return not child.settled.is_set() and (self._strict or is_unknown)

    def regroup(self, group: Group | None, children: Sequence[Child]) -> frozenset[Kind]:
        """Take up a new definition of the group, among all `children`; the kinds of which something else is listed."""
        before, self._group = self._group, group
        changed = self.exchange(children)
        is_same_view = (before and before.tool_search) == (group and group.tool_search)
        return changed if is_same_view else changed | {Kind.TOOL}

    def _take_up(self, children: Sequence[Child]) -> None:
        self._children = self._of_group(children)
        self._keys = frozenset(child.key for child in children)
        for key in self._sections.keys() - {child.key for child in self._children}:
            del self._sections[key]
        known = self._children if self._lists is not None else ()
        self._own = [child for child in known if child.stands_for_instances]

    async def until_listed(self) -> None:
        """Wait until it is known what the present caller is listed, or for as long as lists wait for servers."""
        if self._lists is not None:
            await self._lists.known(self._own, self._ready_wait)

    def _own_table(self, shared: RouteTable, principal: Hashable) -> RouteTable:
        """The table of a principal; principals without accounts share one."""
        catalogues = {} if principal is None or self._lists is None else self._lists.of(principal)
        owner = principal if catalogues else None
        table = self._own_tables.get(owner)
        if table is None:
            withdrawn = {key: frozenset(names) for key, names in self._withdrawn.items()}
            tools = self._tools(catalogues)
            table = CallerTable(shared, self._own, self.naming, tools, self._changes, withdrawn, catalogues, self._keys)
            self._own_tables[owner] = table
            if len(self._own_tables) > _MOST_TABLES:
                self._own_tables.popitem(last=False)
        self._own_tables.move_to_end(owner)
        return table

    def _of_group(self, children: Sequence[Child]) -> Sequence[Child]:
        return children if self._group is None else [child for child in children if child.key in self._group.servers]

    def _tools(self, catalogues: Mapping[str, Catalogue]) -> ToolFilter | None:
        """The group's tools, if these catalogues are used instead of those of the children."""
        if self._group is None or not self._group.tools:
            return None
        if all(":" in tool or "*" in tool for tool in self._group.tools):  # then it does not matter what others offer
            return ToolFilter(self._group, {})
        known = {child.key: catalogues.get(child.key, child.catalogue) for child in self._children}
        listed = {
            key: [*(tool["name"] for tool in offered(catalogue, Kind.TOOL)), *(catalogue.left_out.get(Kind.TOOL) or ())]
            for key, catalogue in known.items()
            if catalogue is not None
        }
        return ToolFilter(self._group, listed)

    def _find_startup_error(self) -> StartupError | None:
        first = [child for child in self._children if child in self._first]
        failures: list[ChildServerError | NameConflictError] = [
            child.last_failure for child in first if child.last_failure is not None and not child.is_serving
        ]
        table = self.table if len(first) == len(self._children) else self._made_table(first, None)
        for rule in self.naming.listed_rules():
            known = {(f.public_name, f.server_keys) for f in failures if isinstance(f, NameConflictError)}
            failures += [
                conflict
                for conflict in table.conflicts(rule)
                if (conflict.public_name, conflict.server_keys) not in known
            ]
        return StartupError(failures) if failures else None

    def _present_offers(self) -> Sequence[object]:
        return [(child, child.catalogue, child.is_listed, child.settled.is_set()) for child in self._children]

    def _made_table(
        self, children: Sequence[Child], tools: ToolFilter | None, sections: dict[str, Section] | None = None
    ) -> RouteTable:
        withdrawn = {key: frozenset(names) for key, names in self._withdrawn.items()}
        return RouteTable(children, self.naming, tools, self._changes, withdrawn, sections=sections, others=self._keys)

    def _starting_owner(self, name: str) -> Child | None:
        starting = (child for child in self._children if not child.settled.is_set())
        return next((child for child in starting if self._may_own(child, name)), None)

    def _unlisted_owner(self, name: str) -> Child | None:
        """The child that the name may belong to, by its key or for want of one, if it has never been listed."""
        unlisted = (child for child in self._children if child.catalogue is None)
        if not self.naming.prefix:
            return next(unlisted, None)
        return next((child for child in unlisted if loose(name[:256]).startswith(f"{loose(child.key)}_")), None)

    def _claimant(self, name: str, owner: str) -> str | None:
        """The key of another child than the owner of a tool, with which the tool's own name begins; it may be one that
        is not here, or not any more.
        """
        others = (child.key for child in self._children if child.key != owner)
        found = next((key for key in others if loose(name[:256]).startswith(f"{loose(key)}_")), None)
        key, mark, _ = name[:256].partition(":")
        return found if found is not None or not mark or key == owner else key

    def _may_own(self, child: Child, name: str) -> bool:
        return not self.naming.prefix or loose(name[:256]).startswith(loose(child.key)[:KEY_HEAD])


def _differ(before: Mapping[str, Section], after: Mapping[str, Section], kind: Kind) -> bool:
    """True if clients see something else of a kind, whichever child it is that has a key."""
    old, new = ({key: section for key, section in each.items() if section.routes[kind]} for each in (before, after))
    return list(old) != list(new) or any(
        section is not old[key] and section.shown(kind) != old[key].shown(kind) for key, section in new.items()
    )
