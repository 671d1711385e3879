"""A child's component as FastMCP sees it: it runs, reads or renders by forwarding to the child."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import mcp_types
from fastmcp.prompts import Message, Prompt, PromptResult
from fastmcp.prompts.base import InputRequiredPromptResult, PromptArgument
from fastmcp.resources import Resource, ResourceTemplate
from fastmcp.resources.base import InputRequiredResourceResult, ResourceContent, ResourceResult
from fastmcp.server.dependencies import get_context
from fastmcp.tools import Tool
from fastmcp.tools.base import InputRequiredToolResult, ToolResult
from fastmcp.utilities.tasks import TaskConfig
from fastmcp.utilities.types import FastMCPBaseModel
from mcp_types.methods import is_input_required
from pydantic import PrivateAttr, model_validator

from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.library_internals import sdk_request_of
from fastmcp_aggregator.protocol.legacy import result_for_legacy, tool_for_legacy
from fastmcp_aggregator.relay.rounds import RETRY_PARAMS, forwarded
from fastmcp_aggregator.routing.addresses import (
    Publish,
    publish_addresses,
    publish_prompt_result,
    publish_tool_result,
    publishing_errors,
)
from fastmcp_aggregator.routing.table import Route

Forward = Callable[..., Awaitable[dict[str, Any]]]
"""`Pipeline.call`."""
_FORBIDDEN = TaskConfig(mode="forbidden")


class _OfChild(FastMCPBaseModel):
    """A component with the way to its child."""

    _route: Route = PrivateAttr()
    _forward: Forward = PrivateAttr()
    _publish: Publish = PrivateAttr(default=None)

    def _bound(self, route: Route, publish: Publish, forward: Forward) -> Self:
        self._route = route
        self._forward = forward
        self._publish = publish
        return self

    async def _ask(self, method: str, address: Mapping[str, str], params: Mapping[str, Any]) -> dict[str, Any]:
        """Forward on behalf of the request that FastMCP is serving, if it serves one."""
        route = self._route
        request = get_context().request_context
        if request is None:
            return await route.child.calls.request(method, forwarded(route.child, params, address))
        ctx = sdk_request_of(request)
        rounds = {name: value for name, value in (ctx.params or {}).items() if name in RETRY_PARAMS}
        asked = {**params, **rounds, "_meta": dict(request.meta or {})}
        try:
            schema = route.component.get("inputSchema") if method == "tools/call" else None
            return await self._forward(replace(ctx, method=method), route.child, asked, address, schema)
        except ChildServerError as error:
            if ctx.request is None:
                raise
            raise error.for_others() from error  # FastMCP hands its text on

    async def _resource(self) -> ResourceResult:
        with publishing_errors(self._publish):
            raw = await self._ask("resources/read", {"uri": self._route.original}, {})
        if is_input_required(raw):
            return InputRequiredResourceResult(mcp_types.InputRequiredResult.model_validate(raw))
        result = mcp_types.ReadResourceResult.model_validate(raw)
        return ResourceResult(contents=[_content(part) for part in result.contents], meta=result.meta)


class ChildTool(_OfChild, Tool):
    """A tool of a child."""

    @model_validator(mode="after")
    def _validate_tool_name(self) -> ChildTool:
        """Replaces FastMCP's check, which would warn about the `:` of every tool at every listing."""
        return self

    @classmethod
    def of(cls, name: str, route: Route, publish: Publish, forward: Forward) -> ChildTool:
        """The tool under its public name, as far as FastMCP can carry its results: it knows only objects."""
        route = replace(route, component=tool_for_legacy(dict(route.component)))
        listed = mcp_types.Tool.model_validate({**route.component, "name": name})
        tool = cls(
            name=name,
            title=listed.title,
            description=listed.description,
            parameters=listed.input_schema,
            output_schema=listed.output_schema,
            annotations=listed.annotations,
            icons=listed.icons,
            meta=listed.meta,
            execution=listed.execution,
            task_config=_FORBIDDEN,
        )
        return tool._bound(route, publish, forward)

    def to_mcp_tool(self, **overrides: Any) -> mcp_types.Tool:
        """As the child lists it, unless something was changed on the way."""
        if overrides.keys() - {"name"}:
            return super().to_mcp_tool(**overrides)
        listed = publish_addresses(dict(self._route.component), self._publish)
        return mcp_types.Tool.model_validate({**listed, "name": overrides.get("name", self.name)})

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        params = {"name": self._route.original, "arguments": arguments}
        raw = await self._ask("tools/call", {"name": self._route.original}, params)
        if is_input_required(raw):
            return InputRequiredToolResult(mcp_types.InputRequiredResult.model_validate(raw))
        result = mcp_types.CallToolResult.model_validate(publish_tool_result(result_for_legacy(raw), self._publish))
        return ToolResult.from_mcp_result(result)


class ChildPrompt(_OfChild, Prompt):
    """A prompt of a child."""

    @classmethod
    def of(cls, name: str, route: Route, publish: Publish, forward: Forward) -> ChildPrompt:
        """The prompt under its public name."""
        listed = mcp_types.Prompt.model_validate({**route.component, "name": name})
        prompt = cls(
            name=name,
            title=listed.title,
            description=listed.description,
            arguments=[
                PromptArgument(name=a.name, description=a.description, required=bool(a.required))
                for a in listed.arguments or []
            ],
            icons=listed.icons,
            meta=listed.meta,
            task_config=_FORBIDDEN,
        )
        return prompt._bound(route, publish, forward)

    def to_mcp_prompt(self, **overrides: Any) -> mcp_types.Prompt:
        """As the child lists it, unless something was changed on the way."""
        if overrides.keys() - {"name"}:
            return super().to_mcp_prompt(**overrides)
        return mcp_types.Prompt.model_validate({**self._route.component, "name": overrides.get("name", self.name)})

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        params = {"name": self._route.original, **({"arguments": arguments} if arguments else {})}
        raw = await self._ask("prompts/get", {"name": self._route.original}, params)
        if is_input_required(raw):
            return InputRequiredPromptResult(mcp_types.InputRequiredResult.model_validate(raw))
        result = mcp_types.GetPromptResult.model_validate(publish_prompt_result(raw, self._publish))
        return PromptResult(
            messages=[Message(m.content, role=m.role) for m in result.messages],
            description=result.description,
            meta=result.meta,
        )


class ChildResource(_OfChild, Resource):
    """A resource of a child."""

    @classmethod
    def of(cls, uri: str, route: Route, publish: Publish, forward: Forward) -> ChildResource:
        """The resource under its public URI."""
        listed = mcp_types.Resource.model_validate(route.component)
        resource = cls(
            uri=uri,  # type: ignore[arg-type]
            name=listed.name,
            title=listed.title,
            description=listed.description,
            mime_type=listed.mime_type or "text/plain",
            annotations=listed.annotations,
            icons=listed.icons,
            meta=listed.meta,
            task_config=_FORBIDDEN,
        )
        return resource._bound(route, publish, forward)

    def to_mcp_resource(self, **overrides: Any) -> mcp_types.Resource:
        """As the child lists it, unless something was changed on the way."""
        if overrides.keys() - {"uri"}:
            return super().to_mcp_resource(**overrides)
        return mcp_types.Resource.model_validate({**self._route.component, "uri": str(overrides.get("uri", self.uri))})

    async def read(self) -> ResourceResult:
        return await self._resource()


class ChildTemplate(_OfChild, ResourceTemplate):
    """A resource template of a child, or any address that is the child's to answer."""

    @classmethod
    def of(cls, uri_template: str, route: Route, publish: Publish, forward: Forward) -> ChildTemplate:
        """The template under its public URI template."""
        listed = mcp_types.ResourceTemplate.model_validate(route.component)
        template = cls(
            uri_template=uri_template,
            name=listed.name,
            title=listed.title,
            description=listed.description,
            mime_type=listed.mime_type or "text/plain",
            annotations=listed.annotations,
            icons=listed.icons,
            parameters={},
            meta=listed.meta,
            task_config=_FORBIDDEN,
        )
        return template._bound(route, publish, forward)

    def to_mcp_template(self, **overrides: Any) -> mcp_types.ResourceTemplate:
        """As the child lists it, unless something was changed on the way."""
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
