"""The target of a request: its child, what the child calls the component, and how what comes back is published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.protocol import methods
from fastmcp_aggregator.protocol.json_rpc import Params, Result
from fastmcp_aggregator.routing.addresses import (
    Publish,
    publish_prompt_result,
    publish_read_result,
    publish_tool_result,
    publishing_errors,
)
from fastmcp_aggregator.routing.table import Route, RouteTable


@dataclass(frozen=True, slots=True)
class Target:
    """Where one request goes."""

    child: Child
    address: Params
    """The parameters that name the component as the child calls it: `name`, `uri` or `ref`."""
    publish: Publish = None
    input_schema: Mapping[str, Any] | None = None
    """Of a tool, as the child lists it."""
    publish_result: Callable[[Result, Publish], Result] | None = None
    is_resource: bool = False
    """Whether errors may name the child's address."""
    addressed: str | None = None
    """The part of the result that may have addresses."""

    @property
    def mirrors_headers(self) -> bool:
        """Whether arguments of a tool stand in HTTP headers, too (2026-07-28, SEP-2243)."""
        catalogue = self.child.catalogue
        return catalogue is not None and self.address.get("name") in catalogue.header_schemas

    def published(self, result: Result) -> Result:
        """A result of the child's, for a client."""
        return result if self.publish_result is None else self.publish_result(result, self.publish)

    @contextmanager
    def published_errors(self) -> Iterator[None]:
        """Raises: MCPError: the child's error, for a client."""
        if not self.is_resource:
            yield
            return
        with publishing_errors(self.publish):
            yield


def tool_target(route: Route) -> Target:
    """The target of a tool's call."""
    schema = route.component.get("inputSchema")
    address = {"name": route.original}
    return Target(route.child, address, route.publish, schema, publish_tool_result, addressed="content")


def prompt_target(route: Route) -> Target:
    """The target of a request for a prompt."""
    address = {"name": route.original}
    return Target(route.child, address, route.publish, None, publish_prompt_result, addressed="messages")


def resource_target(table: RouteTable, child: Child, original: str) -> Target:
    """The target of a request for a resource."""
    publish = table.publisher(child)
    address = {"uri": original}
    return Target(child, address, publish, None, publish_read_result, is_resource=True, addressed="contents")


def completion_target(route: Route, ref: Params) -> Target:
    """The target of a completion for a prompt's argument."""
    return Target(route.child, {"ref": {**ref, "name": route.original}})


def template_completion_target(table: RouteTable, child: Child, original: str, ref: Params) -> Target:
    """The target of a completion for a template's variable."""
    return Target(child, {"ref": {**ref, "uri": original}}, table.publisher(child), is_resource=True)


def known_target(table: RouteTable, method: str, params: Params) -> Target | None:
    """The target of a request whose component is listed or was; None for all else."""
    if method == methods.TOOLS_CALL.name:
        route = _find(table, Kind.TOOL, params.get("name"))
        return tool_target(route) if route else None
    if method == methods.PROMPTS_GET.name:
        route = _find(table, Kind.PROMPT, params.get("name"))
        return prompt_target(route) if route else None
    if method == methods.RESOURCES_READ.name:
        found = _find_uri(table, params.get("uri"))
        return resource_target(table, *found) if found else None
    ref = params.get("ref")
    return _completed(table, ref) if method == methods.COMPLETE.name and isinstance(ref, dict) else None


def _completed(table: RouteTable, ref: Params) -> Target | None:
    if ref.get("type") == "ref/resource":
        found = _find_uri(table, ref.get("uri"))
        return template_completion_target(table, *found, ref) if found else None
    route = _find(table, Kind.PROMPT, ref.get("name"))
    return completion_target(route, ref) if route else None


def _find_uri(table: RouteTable, uri: Any) -> tuple[Child, str] | None:
    return table.find_uri(uri) if isinstance(uri, str) else None


def _find(table: RouteTable, kind: Kind, name: Any) -> Route | None:
    return table.find(kind, name) if isinstance(name, str) else None
