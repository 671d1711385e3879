"""The requests of extensions: what is asked of tasks, and the skills of all servers."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS

from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.catalogue.snapshot import CacheHint, Catalogue, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.extensions import table as extensions
from fastmcp_aggregator.extensions.tasks import TASKS, TaskRef
from fastmcp_aggregator.front.guard import Guard
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.policies.stack import RejectedCall
from fastmcp_aggregator.protocol.json_rpc import Params, Result
from fastmcp_aggregator.protocol.methods import DIRECTORY_READ, METHODS, Method, Recipient
from fastmcp_aggregator.relay.pending_calls import missing_capability
from fastmcp_aggregator.relay.task_ids import TaskIds, lost_task, unknown_task
from fastmcp_aggregator.relay.task_streams import Listened
from fastmcp_aggregator.routing.addresses import publish_task
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.table import RouteTable, offered
from fastmcp_aggregator.routing.target import Target

logger = logging.getLogger(__name__)

_OF_ANOTHER = "the task belongs to another caller"

Answer = Call | Result | None
AnswerRequest = Callable[[Caller, Params], Awaitable[Answer]]
"""Makes a call of a request, or answers it; with None, FastMCP's chain does."""
Serve = Callable[[Call], Awaitable[Result]]


class ExtensionRequests:
    """Answers them for one virtual server."""

    def __init__(
        self,
        directory: Directory,
        task_ids: TaskIds,
        guard: Guard,
        *,
        group_id: str,
        is_own: Callable[[str], bool],
    ) -> None:
        """`is_own` says of a method whether the app itself serves it, too."""
        self._directory = directory
        self._task_ids = task_ids
        self._guard = guard
        self._group_id = group_id
        self._is_own = is_own

    def answers(self, serve: Serve) -> dict[str, AnswerRequest]:
        """By method; `serve` serves a call."""
        self._serve = serve
        by_recipient: Mapping[Recipient, Callable[[Caller, Params, Method], Awaitable[Answer]]] = {
            Recipient.TASK: self._ask_of_task,
            Recipient.CHILD: self._ask_by_address,
            Recipient.CHILDREN: self._list,
        }

        def answer_to(row: Method) -> AnswerRequest:
            return lambda caller, params: by_recipient[row.recipient](caller, params, row)

        return {name: answer_to(METHODS[name]) for name in extensions.OF_METHOD if METHODS[name].is_request}

    # Tasks.

    async def _ask_of_task(self, caller: Caller, params: Params, row: Method) -> Answer:
        require_tasks(caller)
        task_id = params.get("taskId")
        if not isinstance(task_id, str):
            raise errors.invalid_params("taskId: must be a string")
        require_header(caller, task_id)
        ref = self._task_ids.read(task_id, caller.account)
        if ref is None and self._is_own(row.name):
            return None
        if (found := await self.locate_task(caller, task_id)) is None:
            if ref is not None and not self._directory.is_restricted:
                raise lost_task(ref)
            reason = _OF_ANOTHER if self._task_ids.is_of_another(task_id, caller.account) else None
            await self._guard.refuse(caller, params, {"name": ref.tool if ref else ""}, unknown_task, reason=reason)
        child, ref = found
        publish = self._directory.table.publisher(child)
        target = Target(child, {"taskId": ref.task}, publish, publish_result=publish_task)
        return Call(caller, target, row.name, params, self._group_id, task=ref)

    async def locate_task(self, caller: Caller, task_id: Any) -> tuple[Child, TaskRef] | None:
        """The child and the task of an id, if it is this caller's."""
        ref = self._task_ids.read(task_id, caller.account)
        child = None if ref is None else await self._directory.owner_of_tool(ref.server, ref.tool)
        return None if ref is None or child is None else (child, ref)

    async def listened_tasks(self, caller: Caller, task_ids: Sequence[Any]) -> list[Listened]:
        """The tasks of these ids that are this caller's, to listen for.

        Raises:
            MCPError: the client has not declared that it takes tasks.
        """
        require_tasks(caller)
        for task_id in task_ids:
            if self._task_ids.is_of_another(task_id, caller.account):
                self._guard.record(caller, caller.method, "", _OF_ANOTHER)
        found = {task_id: await self.locate_task(caller, task_id) for task_id in task_ids if isinstance(task_id, str)}
        return [Listened(task_id, *located) for task_id, located in found.items() if located is not None]

    # What servers list and have by address.

    async def _list(self, caller: Caller, params: Params, row: Method) -> Answer:
        """One page of one server; the next begins where it ends. A server that cannot list is passed over."""
        await self._directory.ready()
        table = self._directory.table
        server_key, cursor = _read_cursor(params.get("cursor"))
        key = row.name.partition("/")[0]
        rest = {name: value for name, value in params.items() if name != "cursor"}
        if (there := _from(server_key, self._directory.children)) is None:
            gone = partial(errors.invalid_params, "cursor: its server is gone; list from the beginning")
            await self._guard.refuse(caller, params, {"uri": f"skill://{server_key}"}, gone)
        children = [child for child in there if _offers(table, child, row)]
        for child, following in zip_longest(children, children[1:]):
            address = {"cursor": cursor} if cursor is not None and child.key == server_key else {}
            target = Target(child, address, table.publisher(child), publish_result=_publisher(row))
            try:
                page = await self._serve(Call(caller, target, row.name, rest, self._group_id))
            except RejectedCall:
                raise
            except (ChildServerError, MCPError) as error:
                logger.warning("server %r cannot answer %s, and is left out: %s", child.key, row.name, error)
                continue
            if not self._directory.is_same_for_all:
                page |= CacheHint().as_fields()
            if isinstance(page.get("nextCursor"), str):
                return {**page, "nextCursor": _cursor(child.key, page["nextCursor"])}
            if page.get(key):
                return page if following is None else {**page, "nextCursor": _cursor(following.key, None)}
        return {key: [], **CacheHint().as_fields()}

    async def _ask_by_address(self, caller: Caller, params: Params, row: Method) -> Answer:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise errors.invalid_params("uri: must be a string")
        found = await self._directory.locate(uri) or self._without_prefix(uri, row)
        if found is None or not _offers(self._directory.table, found[0], row):
            if found is None and self._is_own(row.name):
                return None
            shown = uri[:2048]
            nothing = MCPError(INVALID_PARAMS, f"There is nothing at {shown} for {row.name}", {"uri": shown})
            await self._guard.refuse(caller, params, {"uri": uri}, lambda: nothing)
        child, original = found
        publish = self._directory.table.publisher(child)
        target = Target(child, {"uri": original}, publish, publish_result=_publisher(row))
        return Call(caller, target, row.name, params, self._group_id)

    def _without_prefix(self, uri: str, row: Method) -> tuple[Child, str] | None:
        """The child of an address that is not listed, where addresses do not tell: the only one that it can be."""
        if self._directory.naming.prefix:
            return None
        table = self._directory.table
        able = [child for child in self._directory.children if _offers(table, child, row)]
        found = [child for child in able if _lists_below(table.catalogue_of(child), uri)] or able
        return (found[0], uri) if len(found) == 1 else None


def require_tasks(caller: Caller) -> None:
    """Reject requests for tasks of a client that has not declared that it takes them. Raises MCPError: it has not."""
    if TASKS.identifier not in extensions.relayed(caller.capabilities):
        raise missing_capability({"extensions": {TASKS.identifier: {}}})


def require_header(caller: Caller, name: str) -> None:
    """Reject a request whose `Mcp-Name` is another than what it names (2026-07-28, SEP-2243).

    Raises:
        MCPError: it is.
    """
    header = (caller.headers or {}).get(MCP_NAME_HEADER)
    if header is not None and decode_header_value(header) != name:
        raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the request body")


def _offers(table: RouteTable, child: Child, row: Method) -> bool:
    """True if a child, which is up and of which something was approved, has declared a method of an extension to the
    present caller.
    """
    known = table.known_of(child)
    if known is not None and known.withheld is None:
        return False
    if child.stands_for_instances:
        if known is None:
            return row.recipient is Recipient.CHILD  # who asks for something there may log in first
        capabilities = known.capabilities
    elif child.session is None or child.session.era not in row.eras:
        return False
    else:
        capabilities = child.session.capabilities
    settings = extensions.relayed(capabilities).get(extensions.OF_METHOD[row.name].identifier)
    return settings is not None and (row.name not in _OPTIONAL or settings.get(_OPTIONAL[row.name]) is True)


_OPTIONAL = {DIRECTORY_READ.name: "directoryRead"}
"""By method, the flag in the settings of its extension that a server sets if it has it."""


def _lists_below(catalogue: Catalogue | None, uri: str) -> bool:
    return any(resource["uri"].startswith(f"{uri}/") for resource in offered(catalogue, Kind.RESOURCE))


def _publisher(row: Method) -> Callable[[Result, Any], Result]:
    rewrite = extensions.rewrite_of(row.name)
    return lambda result, publish: result if publish is None else rewrite(result, publish)


def _from(server_key: str, children: Sequence[Child]) -> Sequence[Child] | None:
    """The children from this one on, or all of them; None: it is not there."""
    if not server_key:
        return children
    at = next((number for number, child in enumerate(children) if child.key == server_key), None)
    return None if at is None else children[at:]


def _cursor(server_key: str, cursor: str | None) -> str:
    return base64.urlsafe_b64encode(json.dumps([server_key, cursor]).encode()).decode()


def _read_cursor(text: Any) -> tuple[str, str | None]:
    """The server key with which a page begins, and the server's own cursor.

    Raises:
        MCPError: it is no cursor of ours.
    """
    if text is None:
        return "", None
    try:
        server_key, cursor = json.loads(base64.urlsafe_b64decode(text))
    except (ValueError, TypeError, RecursionError):
        raise errors.invalid_params("cursor: is not a cursor of this list") from None
    if not isinstance(server_key, str) or not isinstance(cursor, str | None):
        raise errors.invalid_params("cursor: is not a cursor of this list")
    return server_key, cursor
