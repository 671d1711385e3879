"""The JSON API, for programs that speak no MCP: `POST /mcp/{method}` with the params as its body."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastmcp import Client, FastMCP
from mcp import MCPError
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fastmcp_aggregator.service.limits import INVALID_PARAMS, MAX_BODY_SIZE, METHOD_NOT_FOUND, PARSE_ERROR, SERVER_ERROR

_Method = Callable[[Client[Any], dict[str, Any]], Awaitable[BaseModel]]

_METHODS: Mapping[str, _Method] = {
    "tools/list": lambda client, params: client.list_tools_mcp(**params),
    "tools/call": lambda client, params: client.call_tool_mcp(**{"arguments": {}, **params}),
    "resources/list": lambda client, params: client.list_resources_mcp(**params),
    "resources/templates/list": lambda client, params: client.list_resource_templates_mcp(**params),
    "resources/read": lambda client, params: client.read_resource_mcp(**params),
    "prompts/list": lambda client, params: client.list_prompts_mcp(**params),
    "prompts/get": lambda client, params: client.get_prompt_mcp(**params),
}
_PARAMS = {"cursor", "name", "arguments", "uri"}
_STATUS = {PARSE_ERROR: 400, INVALID_PARAMS: 400, METHOD_NOT_FOUND: 404, SERVER_ERROR: 503}


class _Refused(Exception):
    def __init__(self, code: int, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.status = status or _STATUS.get(code, 500)


async def answer(server: FastMCP[Any], request: Request) -> Response:
    """The result of the method that the path names; or `{"error": {"code": …, "message": …}}`, with its HTTP status."""
    try:
        method = _method(request.path_params["method"])
        result = await _result(server, method, _params(await _body(request)))
    except _Refused as refused:
        return JSONResponse({"error": {"code": refused.code, "message": refused.message}}, refused.status)
    return JSONResponse(result.model_dump(mode="json", by_alias=True, exclude_none=True))


def _method(name: str) -> _Method:
    if name not in _METHODS:
        raise _Refused(METHOD_NOT_FOUND, f"there is no method {name!r}")
    return _METHODS[name]


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_SIZE:
            raise _Refused(INVALID_PARAMS, f"the body has more than {MAX_BODY_SIZE} bytes", status=413)
    if body and request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise _Refused(INVALID_PARAMS, "the body must be sent as application/json", status=415)
    return bytes(body)


def _params(body: bytes) -> dict[str, Any]:
    try:
        params = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise _Refused(PARSE_ERROR, "the body is not JSON") from None
    if not isinstance(params, dict) or params.keys() - _PARAMS:
        raise _Refused(INVALID_PARAMS, f"params are an object with some of {', '.join(sorted(_PARAMS))}")
    return params


async def _result(server: FastMCP[Any], method: _Method, params: dict[str, Any]) -> BaseModel:
    try:
        async with Client(server) as client:
            return await method(client, params)
    except MCPError as error:
        raise _Refused(error.error.code, error.error.message) from None
    except (TypeError, ValueError):
        raise _Refused(INVALID_PARAMS, "these are not the params of this method") from None
