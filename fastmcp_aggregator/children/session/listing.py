"""Reading a child's whole catalogue: every kind it declares, every page."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import X_MCP_HEADER_KEY, find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import METHOD_NOT_FOUND
from pydantic_core import to_json

from fastmcp_aggregator.catalogue.snapshot import SPECS, CacheHint, Catalogue, Component, Kind, ids_of, usable
from fastmcp_aggregator.children.session.conformity import conforming
from fastmcp_aggregator.children.session.failures import describe
from fastmcp_aggregator.children.session.session import ChildSession
from fastmcp_aggregator.concurrency.waits import wait_first
from fastmcp_aggregator.naming.uris import goes_round
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.protocol.json_rpc import json_size, json_text
from fastmcp_aggregator.protocol.methods import capabilities_of
from fastmcp_aggregator.protocol.parts import count_parts

logger = logging.getLogger(__name__)
_PAGE_LIMIT = 1000
_LONGEST = 8 * 1024**2
"""Bytes of all components of a kind: who asks for the list is given them in one step, and others wait for it."""
_LARGEST_COMPONENT = 1024**2
"""Bytes of one: what is done with it is done in one step."""
_MOST_PARTS = 20_000
"""Parts of one: to check so many icons takes a fiftieth of a second."""
_MOST_INSTRUCTIONS = 64 * 1024
"""Characters."""
_MOST_CAPABILITIES = 16 * 1024
"""Bytes: each client is told those of all servers together in its handshake."""
_LARGEST_HEADER_SCHEMA = 64 * 1024
"""Bytes of an input schema in which it is looked for arguments that are HTTP headers as well."""
_HEADER_KEY = f'"{X_MCP_HEADER_KEY}"'.encode()
_STEP = 256 * 1024
"""Bytes that are looked at in one."""
_PARTS_AT_ONCE = 50_000
"""Parts of lists that are read as one: it takes a twentieth of a second. Longer ones count as several."""
_IN_A_TURN = 1000
"""Components whose names are looked at."""
_PARTS_OF_COMPONENT = 4
"""The cost of a component besides its parts."""


@dataclass(frozen=True, slots=True)
class CheckedList:
    """The list of a kind from a child, and the part of it that can be served."""

    items: list[Any]
    protocol_version: str
    kept: tuple[Component, ...]
    ids: frozenset[str]
    parts: int
    """Parts of all items: the cost of taking up the list goes by these."""


async def read_catalogue(
    server_key: str,
    session: ChildSession,
    *,
    version: int,
    max_tools: int | None = None,
    checked: dict[Kind, CheckedList] | None = None,
) -> Catalogue:
    """List everything the child offers, of its tools at most `max_tools`. The caller sets the deadline.

    What was `checked` before is not checked again; what is checked now is put there.

    Raises:
        MCPError: the child answered with an error, or the connection ended.
    """
    kinds = [kind for kind in Kind if _declares(session.capabilities, SPECS[kind].capability)]
    checked = {} if checked is None else checked
    lists = await asyncio.gather(*(_read_kind(server_key, session, kind, checked) for kind in kinds))
    components = {kind: items for kind, (items, _, _) in zip(kinds, lists, strict=True)}
    offered = {kind: ids for kind, (_, _, ids) in zip(kinds, lists, strict=True)}
    tools = components.get(Kind.TOOL, ())
    if max_tools is not None and len(tools) > max_tools:
        logger.warning("server %r lists %d tools; the first %d are used", server_key, len(tools), max_tools)
        tools = components[Kind.TOOL] = tools[:max_tools]
    schemas = await _header_schemas(server_key, tools)
    session.mirror_headers(schemas)
    hints = {kind: hint for kind, (_, hint, _) in zip(kinds, lists, strict=True) if hint is not None}
    left_out = {
        kind: None if ids is None else ids - ids_of(kind, components[kind])
        for kind, ids in offered.items()
        if ids is None or not ids <= ids_of(kind, components[kind])
    }
    told = session.instructions
    if told is not None and len(told) > _MOST_INSTRUCTIONS:
        logger.warning(
            "server %r has %d characters of instructions; the first %d are used",
            server_key,
            len(told),
            _MOST_INSTRUCTIONS,
        )
        told = told[:_MOST_INSTRUCTIONS]
    capabilities = _bounded(server_key, session.capabilities)
    return Catalogue(version, components, told, capabilities, hints, schemas, left_out=left_out)


def _bounded(server_key: str, capabilities: dict[str, Any]) -> dict[str, Any]:
    """The capabilities of a child; of one that says too much of them only the flags that MCP itself defines."""
    if json_size(capabilities) <= _MOST_CAPABILITIES:
        return capabilities
    logger.warning(
        "server %r has more than %d KiB of capabilities; what it declares beyond MCP's own is not used",
        server_key,
        _MOST_CAPABILITIES // 1024,
    )
    known = {
        name: parts for name, parts in capabilities_of("server").items() if isinstance(capabilities.get(name), dict)
    }
    return {name: {part: bool(capabilities[name].get(part)) for part in parts} for name, parts in known.items()}


async def _header_schemas(server_key: str, tools: Iterable[Component]) -> dict[str, dict[str, Any]]:
    """By tool, its `_header_schema`, if it is not empty. Others have their turns in between: to walk a schema takes
    long, and so only those are that may have any, and are not very large.
    """
    found, step, too_large = {}, 0, 0
    for tool in tools:
        text = _json(tool.get("inputSchema"))
        step += len(text)
        if step > _STEP:
            step = 0
            await asyncio.sleep(0)
        if _HEADER_KEY not in text:
            continue
        if len(text) > _LARGEST_HEADER_SCHEMA:
            too_large += 1
            continue
        await asyncio.sleep(0)
        if schema := _header_schema(tool["inputSchema"]):
            found[tool["name"]] = schema
    if too_large:
        logger.warning(
            "server %r lists input schemas over %d KiB (%d); arguments of these tools are not sent as HTTP headers",
            server_key,
            _LARGEST_HEADER_SCHEMA // 1024,
            too_large,
        )
    return found


def _json(value: Any) -> bytes:
    try:
        return to_json(value)
    except ValueError:  # half of a surrogate pair, which has no UTF-8
        return json.dumps(value).encode()


def _header_schema(input_schema: Any) -> dict[str, Any]:
    """The schema with nothing but the properties that have an `x-mcp-header`; empty if none has, or one is invalid.

    Which arguments are HTTP headers as well: 2026-07-28, SEP-2243.
    """
    if find_invalid_x_mcp_header(input_schema) is not None:
        return {}
    kept: dict[str, Any] = {}
    for path in x_mcp_header_map(input_schema):
        whole, part = input_schema, kept
        for name in path:
            whole, part = whole["properties"][name], part.setdefault("properties", {}).setdefault(name, {})
        part |= {"type": whole["type"], X_MCP_HEADER_KEY: whole[X_MCP_HEADER_KEY]}
    return kept


def _declares(capabilities: dict[str, Any], name: str) -> bool:
    """True if the list is to be asked for. A child that declares nothing at all is asked for everything."""
    known = {spec.capability for spec in SPECS.values()}
    return name in capabilities or not known & capabilities.keys()


async def _read_kind(
    server_key: str, session: ChildSession, kind: Kind, checked: dict[Kind, CheckedList]
) -> tuple[tuple[Component, ...], CacheHint | None, frozenset[str] | None]:
    """The components of a kind that can be served; for how long; and the ids of all that is listed, None if unknown."""
    try:
        pages = await _read_pages(server_key, session, kind)
    except MCPError as error:
        if error.code == METHOD_NOT_FOUND:
            return (), None, frozenset()  # servers answer this for what they don't have
        if kind is Kind.TOOL or session.is_over(error):
            raise
        logger.warning("server %r cannot list its %s, which are left out: %s", server_key, kind, error.message)
        return (), None, None
    version, items, before = session.protocol_version, pages.items, checked.get(kind)
    if before is None or (before.protocol_version, before.items) != (version, items):
        kept = usable(server_key, kind, await conforming(server_key, kind, items, version))
        await _let_others_go_on(pages.parts)
        kept = await _without_rounds(server_key, kind, kept)
        before = checked[kind] = CheckedList(items, version, kept, ids_of(kind, items), pages.parts)
        await _let_others_go_on(pages.parts)
    return before.kept, pages.hint, before.ids | pages.rest if pages.are_known else None


async def _let_others_go_on(parts: int) -> None:
    """After something was done with all of a list, if it has so many parts that this took its time."""
    if parts > _PARTS_AT_ONCE:
        await asyncio.sleep(0)


async def _without_rounds(server_key: str, kind: Kind, listed: tuple[Component, ...]) -> tuple[Component, ...]:
    """The items that have not come round to the server again, through this program."""
    kept = list[Component]()
    for number, item in enumerate(listed):
        if number % _IN_A_TURN == _IN_A_TURN - 1:
            await asyncio.sleep(0)
        if not goes_round(server_key, item[SPECS[kind].id_field]):
            kept.append(item)
    if len(kept) < len(listed):
        logger.warning(
            "server %r leads back to this aggregator: %d of its %s have come round through it and are left out; "
            "remove the server, or let it ask for a group that it is not in",
            server_key,
            len(listed) - len(kept),
            kind,
        )
    return tuple(kept)


@dataclass(slots=True)
class _Pages:
    """The pages of a kind: from the first on, the items that are not too large; of the rest the ids."""

    items: list[Any] = field(default_factory=list)
    rest: frozenset[str] = frozenset()
    hint: CacheHint | None = None
    """The first page's hint of how long they may be kept."""
    too_large: int = 0
    """Items that are too large, each for itself."""
    left: int = _LONGEST
    parts: int = 0
    left_for_ids: int = _LONGEST
    """And for the cursors, by which it is seen that a list goes in a circle."""

    @property
    def are_known(self) -> bool:
        """True if their content is known; if not, no more are read."""
        return self.left_for_ids >= 0

    async def take(self, kind: Kind, listed: list[Any]) -> None:
        """The items of the next page. Others have their turns in between."""
        rest, step = list[Any](), 0
        for number, item in enumerate(listed):
            size, parts = len(text := json_text(item)), _PARTS_OF_COMPONENT
            if size > _LARGEST_COMPONENT or (parts := parts + count_parts(text)) > _MOST_PARTS:
                rest.append(item)
                self.too_large += 1
            elif self.left < size:
                self.left = -1
                rest += listed[number:]
                break
            else:
                self.items.append(item)
                self.left -= size
                self.parts += parts
            step += size
            if step > _STEP:
                step = 0
                await asyncio.sleep(0)
        ids = ids_of(kind, rest) - self.rest
        self.left_for_ids -= sum(map(len, ids))
        if self.are_known:
            self.rest |= ids


async def _read_pages(server_key: str, session: ChildSession, kind: Kind) -> _Pages:
    spec, pages = SPECS[kind], _Pages()
    seen: set[str] = set()
    params: dict[str, str] | None = None
    while pages.are_known and len(seen) < _PAGE_LIMIT:
        page = await session.request(spec.list_method, params)
        pages.hint = pages.hint or _hint_of(page)
        listed = page.get(spec.list_key)
        await pages.take(kind, listed if isinstance(listed, list) else [])
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or cursor in seen:
            break
        seen.add(cursor)
        pages.left_for_ids -= len(cursor)
        params = {"cursor": cursor}
    if pages.too_large:
        logger.warning(
            "server %r lists %d of its %s with over %d KiB or %d values each; they are left out",
            server_key,
            pages.too_large,
            kind,
            _LARGEST_COMPONENT // 1024,
            _MOST_PARTS,
        )
    if pages.left < 0 or not pages.are_known:
        used = len(pages.items)
        logger.warning("server %r lists %s that are too large together; the first %d are used", server_key, kind, used)
    return pages


def _hint_of(page: dict[str, Any]) -> CacheHint | None:
    ttl = page.get("ttlMs")
    if not isinstance(ttl, int) or isinstance(ttl, bool) or "cacheScope" not in page:
        return None
    return CacheHint(max(0, ttl))


_LIST_DEADLINE = 60.0
"""Seconds a running child has to list everything again."""
_LISTEN_BOUND = 2.0
"""Seconds that a modern child has to agree to tell of list changes, before its lists are read all the same."""
_CHANGES_AT_ONCE = 10
"""Times that changed lists are read without an interval."""
_ROUNDING = 1e-6
"""Seconds by which a wait may have been rounded down, which would end before there is a token."""
_LATE = 1.0
"""Seconds that a child has to say that it has more, when it lists something else than clients are shown."""


class Lists:
    """The lists of one child, over all its lives. `are_due` is set when they are to be read again."""

    def __init__(
        self,
        server_key: str,
        max_tools: int,
        catalogue_filter: Callable[[str, Catalogue], Catalogue],
        *,
        settle: float,
        interval: float,
    ) -> None:
        """`catalogue_filter` drops what of a catalogue is not served, by server key. Changes are collected until
        they settle, and in the long run their lists are read once in an interval, both in seconds.
        """
        self._key = server_key
        self._max_tools = max_tools
        self._filter = catalogue_filter
        self._told: frozenset[Kind] = frozenset()
        self._times_read = 0
        self._checked: dict[Kind, CheckedList] = {}
        self._readings = TokenBucket(burst=_CHANGES_AT_ONCE, rate=1 / interval)
        self._settle = settle
        self.are_due = asyncio.Event()

    def have_changed(self, kinds: frozenset[Kind]) -> None:
        """The child says so."""
        self._told |= kinds
        self.are_due.set()

    async def listen(self, session: ChildSession, stack: AsyncExitStack) -> None:
        """Begin to hear of changes, before the lists are read: none in between is missed."""
        is_open = asyncio.Event()
        listening = asyncio.create_task(self._hear(session, is_open), name=f"listen:{self._key}")
        stack.push_async_callback(_ended, listening)
        await wait_first(is_open, timeout=_LISTEN_BOUND)

    async def read(self, session: ChildSession) -> Catalogue:
        """The present offer of the child, as far as it is taken up.

        Raises:
            MCPError: the child cannot list.
        """
        self._times_read += 1
        offered = await read_catalogue(
            self._key, session, version=self._times_read, max_tools=self._max_tools, checked=self._checked
        )
        await _let_others_go_on(self._parts)
        return offered.reduced_to(self._filter(self._key, offered))

    async def read_late(self, session: ChildSession, first: Catalogue) -> Catalogue:
        """The lists of a child that may complete them only once it has begun to serve.

        Raises:
            MCPError: the child cannot list.
        """
        await wait_first(self.are_due, session.lost, timeout=_LATE)
        if not self.are_due.is_set():
            return first
        await asyncio.sleep(self._settle)
        self.are_due.clear()
        self._told = frozenset()
        return await self.read(session)

    def pause(self) -> float:
        """Seconds to wait before changed lists are read again, which is to be done then; more, the longer they were."""
        now = asyncio.get_running_loop().time()
        wait = self._readings.wait(now)
        self._readings.take(now + wait + _ROUNDING)
        return max(self._settle, wait)

    async def read_again(self, session: ChildSession) -> tuple[Catalogue, frozenset[Kind]] | None:
        """The present offer, and the kinds that the child has announced as changed; None: it fails. Clients are told of
        these, even if they are as they were before.
        """
        self.are_due.clear()
        told, self._told = self._told, frozenset()
        try:
            async with asyncio.timeout(_LIST_DEADLINE):
                catalogue = await self.read(session)
        except (MCPError, TimeoutError) as error:
            logger.warning("server %r changed its lists, but cannot list: %s", self._key, describe(error))
            return None
        self._readings.spend(max(0.0, self._parts / _PARTS_AT_ONCE - 1))
        return catalogue, told

    @property
    def _parts(self) -> int:
        return sum(each.parts for each in self._checked.values())

    async def _hear(self, session: ChildSession, is_open: asyncio.Event) -> None:
        try:
            await session.listen_for_changes(is_open)
        except Exception as error:
            logger.warning("server %r no longer tells when its lists change: %s", self._key, error)
        finally:
            is_open.set()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
