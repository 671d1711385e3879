"""The children's components as a FastMCP provider: one provider, one look-up, whatever the number of children.

This is how FastMCP code sees them: parents that mount the aggregator, middleware, transforms, `app.list_tools()`.
A component runs, reads or renders by forwarding to its child.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import mcp_types
from fastmcp.prompts import Message, Prompt, PromptResult
from fastmcp.prompts.base import InputRequiredPromptResult, PromptArgument
from fastmcp.resources import Resource, ResourceTemplate
from fastmcp.resources.base import InputRequiredResourceResult, ResourceContent, ResourceResult
from fastmcp.server.dependencies import get_context
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.utilities.components import FastMCPComponent
from fastmcp.utilities.tasks import TaskConfig
from fastmcp.utilities.types import FastMCPBaseModel
from fastmcp.utilities.versions import VersionSpec
from mcp_types.methods import is_input_required
from pydantic import PrivateAttr, model_validator

from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.library_internals import sdk_request_of
from fastmcp_aggregator.protocol.legacy import result_for_legacy, tool_for_legacy
from fastmcp_aggregator.protocol.methods import PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from fastmcp_aggregator.relay.rounds import RETRY_PARAMS, forwarded
from fastmcp_aggregator.routing.addresses import (
    Publish,
    publish_addresses,
    publish_prompt_result,
    publish_tool_result,
    publishing_errors,
)
from fastmcp_aggregator.routing.directory import Directory
from fastmcp_aggregator.routing.route import Route
from fastmcp_aggregator.routing.target import Target

Forward = Callable[..., Awaitable[dict[str, Any]]]
"""`Pipeline.call`."""
_Listed = mcp_types.Tool | mcp_types.Prompt | mcp_types.Resource | mcp_types.ResourceTemplate
_FORBIDDEN = TaskConfig(mode="forbidden")


class _OfChild(FastMCPBaseModel):
    """A component with the way to its child."""

    _route: Route = PrivateAttr()
    _forward: Forward = PrivateAttr()
    _publish: Publish = PrivateAttr(default=None)

    @classmethod
    def of(cls, listed: _Listed, route: Route, publish: Publish, forward: Forward, **fields: Any) -> Self:
        """The component as it is listed under its public name; `fields` are those that its kind alone has."""
        shared = {name: getattr(listed, name) for name in ("name", "title", "description", "icons", "meta")}
        component = cls.model_validate({**shared, **fields, "task_config": _FORBIDDEN})
        component._route, component._publish, component._forward = route, publish, forward
        return component

    async def _ask(self, method: str, address: Mapping[str, str], params: Mapping[str, Any]) -> dict[str, Any]:
        """Forward on behalf of the request that FastMCP is serving, if it serves one."""
        route = self._route
        request = get_context().request_context
        if request is None:
            if route.child.options.endpoint.access.is_per_caller:
                raise ChildServerError(route.child.key, "runtime", "it is called with each caller's own account")
            return await route.child.calls.request(method, forwarded(route.child, params, address))
        ctx = sdk_request_of(request)
        rounds = {name: value for name, value in (ctx.params or {}).items() if name in RETRY_PARAMS}
        asked = {**params, **rounds, "_meta": dict(request.meta or {})}
        try:
            schema = route.component.get("inputSchema") if method == TOOLS_CALL.name else None
            target = Target(route.child, address, input_schema=schema)
            return await self._forward(replace(ctx, method=method), target, asked)
        except ChildServerError as error:
            if ctx.request is None:
                raise
            raise error.for_others() from error  # FastMCP hands its text on

    async def _resource(self) -> ResourceResult:
        with publishing_errors(self._publish):
            raw = await self._ask(RESOURCES_READ.name, {"uri": self._route.original}, {})
        if is_input_required(raw):
            return InputRequiredResourceResult(mcp_types.InputRequiredResult.model_validate(raw))
        result = mcp_types.ReadResourceResult.model_validate(raw)
        return ResourceResult(contents=[_content(part) for part in result.contents], meta=result.meta)


class ChildTool(_OfChild, Tool):
    @model_validator(mode="after")
    def _validate_tool_name(self) -> ChildTool:
        """Replaces FastMCP's check, which would warn about the `:` of every tool at every listing."""
        return self

    def to_mcp_tool(self, **overrides: Any) -> mcp_types.Tool:
        """As the child lists it, unless something was changed on the way."""
        if overrides.keys() - {"name"}:
            return super().to_mcp_tool(**overrides)
        listed = publish_addresses(dict(self._route.component), self._publish)
        return mcp_types.Tool.model_validate({**listed, "name": overrides.get("name", self.name)})

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        params = {"name": self._route.original, "arguments": arguments}
        raw = await self._ask(TOOLS_CALL.name, {"name": self._route.original}, params)
        if is_input_required(raw):
            return InputRequiredToolResult(mcp_types.InputRequiredResult.model_validate(raw))
        result = mcp_types.CallToolResult.model_validate(publish_tool_result(result_for_legacy(raw), self._publish))
        return ToolResult.from_mcp_result(result)


class ChildPrompt(_OfChild, Prompt):
    def to_mcp_prompt(self, **overrides: Any) -> mcp_types.Prompt:
        if overrides.keys() - {"name"}:
            return super().to_mcp_prompt(**overrides)
        return mcp_types.Prompt.model_validate({**self._route.component, "name": overrides.get("name", self.name)})

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        params = {"name": self._route.original, **({"arguments": arguments} if arguments else {})}
        raw = await self._ask(PROMPTS_GET.name, {"name": self._route.original}, params)
        if is_input_required(raw):
            return InputRequiredPromptResult(mcp_types.InputRequiredResult.model_validate(raw))
        result = mcp_types.GetPromptResult.model_validate(publish_prompt_result(raw, self._publish))
        return PromptResult(
            messages=[Message(m.content, role=m.role) for m in result.messages],
            description=result.description,
            meta=result.meta,
        )


class ChildResource(_OfChild, Resource):
    def to_mcp_resource(self, **overrides: Any) -> mcp_types.Resource:
        if overrides.keys() - {"uri"}:
            return super().to_mcp_resource(**overrides)
        return mcp_types.Resource.model_validate({**self._route.component, "uri": str(overrides.get("uri", self.uri))})

    async def read(self) -> ResourceResult:
        return await self._resource()


class ChildTemplate(_OfChild, ResourceTemplate):
    """A resource template of a child, or any address that is the child's to answer."""

    def to_mcp_template(self, **overrides: Any) -> mcp_types.ResourceTemplate:
        if overrides.keys() - {"uri_template"}:
            return super().to_mcp_template(**overrides)
        return mcp_types.ResourceTemplate.model_validate(
            {**self._route.component, "uriTemplate": overrides.get("uri_template", self.uri_template)}
        )

    def matches(self, uri: str) -> dict[str, Any] | None:
        """The directory has decided already that the address is this child's."""
        return {}

    async def _read(self, uri: str, params: dict[str, Any]) -> ResourceResult:
        return await self._resource()


def _content(part: mcp_types.TextResourceContents | mcp_types.BlobResourceContents) -> ResourceContent:
    body = part.text if isinstance(part, mcp_types.TextResourceContents) else base64.b64decode(part.blob)
    return ResourceContent(body, mime_type=part.mime_type, meta=part.meta)


class ChildrenProvider(Provider):
    """Serves what is in the directory, under the names that ordinary clients see."""

    def __init__(self, directory: Directory, forward: Forward) -> None:
        super().__init__()
        self._directory = directory
        self._forward = forward

    async def get_tasks(self) -> Sequence[FastMCPComponent]:
        """None: a child's component never runs as a background task of ours. FastMCP asks before any child is up."""
        return ()

    async def _list_tools(self) -> Sequence[Tool]:
        return [self._tool(name, route) for name, route in await self._served(Kind.TOOL)]

    async def _list_resources(self) -> Sequence[Resource]:
        return [self._resource(uri, route) for uri, route in await self._served(Kind.RESOURCE)]

    async def _list_resource_templates(self) -> Sequence[ResourceTemplate]:
        return [self._template(uri, route) for uri, route in await self._served(Kind.TEMPLATE)]

    async def _list_prompts(self) -> Sequence[Prompt]:
        return [self._prompt(name, route) for name, route in await self._served(Kind.PROMPT)]

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        route = await self._directory.route(Kind.TOOL, name)
        return self._tool(name, route) if route and version is None else None

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Prompt | None:
        route = await self._directory.route(Kind.PROMPT, name)
        return self._prompt(name, route) if route and version is None else None

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Resource | None:
        route = self._directory.table.find(Kind.RESOURCE, uri)
        return self._resource(uri, route) if route and version is None else None

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> ResourceTemplate | None:
        """Any address of a child can be read, whether a template of its covers it or not: the child decides."""
        found = await self._directory.locate(uri)
        if found is None or version is not None:
            return None
        child, original = found
        return self._template(uri, Route(child, original, {"uriTemplate": original, "name": original}))

    def _tool(self, name: str, route: Route) -> Tool:
        """As far as FastMCP can carry the tool's results: it knows only objects."""
        route = replace(route, component=tool_for_legacy(dict(route.component)))
        listed = mcp_types.Tool.model_validate({**route.component, "name": name})
        return ChildTool.of(
            listed,
            *self._way(route),
            parameters=listed.input_schema,
            output_schema=listed.output_schema,
            annotations=listed.annotations,
            execution=listed.execution,
        )

    def _prompt(self, name: str, route: Route) -> Prompt:
        listed = mcp_types.Prompt.model_validate({**route.component, "name": name})
        arguments = [
            PromptArgument(name=a.name, description=a.description, required=bool(a.required))
            for a in listed.arguments or []
        ]
        return ChildPrompt.of(listed, *self._way(route), arguments=arguments)

    def _resource(self, uri: str, route: Route) -> Resource:
        listed = mcp_types.Resource.model_validate(route.component)
        return ChildResource.of(listed, *self._way(route), uri=uri, **_of_contents(listed))

    def _template(self, uri: str, route: Route) -> ResourceTemplate:
        listed = mcp_types.ResourceTemplate.model_validate(route.component)
        return ChildTemplate.of(listed, *self._way(route), uri_template=uri, parameters={}, **_of_contents(listed))

    def _way(self, route: Route) -> tuple[Route, Publish, Forward]:
        return route, self._directory.table.publisher(route.child), self._forward

    async def _served(self, kind: Kind) -> list[tuple[str, Route]]:
        await self._directory.ready()
        return list(self._directory.table.named(kind, self._directory.naming.rule(None)))


def _of_contents(listed: mcp_types.Resource | mcp_types.ResourceTemplate) -> dict[str, Any]:
    return {"mime_type": listed.mime_type or "text/plain", "annotations": listed.annotations}
