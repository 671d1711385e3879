"""The JSON API, for programs that speak no MCP: `POST /mcp/tools/call`: the method as path, its params as the body.

The answer is the method's result, or a JSON-RPC error as `{"error": {"code", "message", "data"}}` with the HTTP status
that the protocol gives it. A tool may be named without its server here, if only one in the group has that name.

A request goes the way of a modern client's, without its transport. What the child says on the way (progress, log
messages) has nowhere to go. What the program declares in the `_meta` of its request counts: with `elicitation` a
question is its answer, with the extension for tasks a task may be. Without, a question gets the answer that this client
cannot be asked.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from fastmcp import FastMCP
from mcp.server.connection import Connection
from mcp.server.lowlevel.server import Server
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from fastmcp_aggregator.access.loopback import is_local
from fastmcp_aggregator.catalogue.snapshot import Kind
from fastmcp_aggregator.errors import StartupError
from fastmcp_aggregator.front.http.connection import whole_body
from fastmcp_aggregator.front.http.security import guarded_route, is_json
from fastmcp_aggregator.front.wire.errors import failed_start, unexpected
from fastmcp_aggregator.library_internals import sdk_server_of
from fastmcp_aggregator.policies.limits import TOO_MANY_CALLS
from fastmcp_aggregator.protocol.json_rpc import SERVER_UNAVAILABLE
from fastmcp_aggregator.protocol.methods import CLIENT_REQUESTS, PROMPTS_GET, TOOLS_CALL
from fastmcp_aggregator.routing.directory import Directory

JSON_METHODS = tuple(name for name, row in CLIENT_REQUESTS.items() if "modern" in row.eras)
_LONG = 256 * 1024
"""Bytes of a body that takes milliseconds to parse."""
_LONGEST_WAIT = 1e9
"""Seconds. A server may have put anything into its error."""
_STATUS = {SERVER_UNAVAILABLE: 503, TOO_MANY_CALLS: 429}
_NAMED = {TOOLS_CALL.name: Kind.TOOL, PROMPTS_GET.name: Kind.PROMPT}
_MISNAMED = frozenset({"args", "argument", "input", "inputs", "params", "parameters"})
"""Names that a program that speaks no MCP may give to `arguments`."""


class _NotJson(MCPError):
    def __init__(self) -> None:
        super().__init__(INVALID_REQUEST, "the body must be JSON: send it with `Content-Type: application/json`")


def json_route(app: FastMCP[Any], directory: Directory, path: str) -> Route:
    """The JSON endpoints of an app, with what is in the directory, whose MCP endpoint is at `path`."""

    async def serve(request: Request) -> Response:
        request_id = request_id_of(request.scope["headers"])
        response = await _answer(app, directory, request.path_params["method"], request, request_id)
        response.headers[REQUEST_ID] = request_id
        return response

    return guarded_route(f"{path.rstrip('/')}/{{method:path}}", serve, app.auth, methods=["POST"])


def endpoint_with_slash(app: FastMCP[Any], path: str) -> Route:
    """The MCP endpoint's address with a slash at its end, as people write it: leads to the one without."""
    to = f"../{path.rpartition('/')[2]}"  # whatever a proxy has put before it

    async def lead(_: Request) -> Response:
        return RedirectResponse(to, 307)

    return guarded_route(f"{path}/", lead, app.auth, methods=["GET", "POST", "DELETE"])


async def _answer(app: FastMCP[Any], directory: Directory, method: str, request: Request, request_id: str) -> Response:
    if method not in JSON_METHODS:
        return refusal(
            MCPError(METHOD_NOT_FOUND, f"there is no method {method!r}; there are: {', '.join(JSON_METHODS)}")
        )
    try:
        params = await _params(method, request)
        if method in _NAMED and isinstance(name := params.get("name"), str):
            params = {**params, "name": await directory.public_name(_NAMED[method], name)}
        return _json(await _exchange(sdk_server_of(app), method, params, request, request_id))
    except MCPError as error:
        return refusal(error)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:10])
        return refusal(MCPError(INVALID_PARAMS, f"Invalid request parameters: {problems}"))
    except StartupError as error:
        return refusal(failed_start(error, is_local=is_local(request.scope)))
    except ClientDisconnect:
        raise
    except Exception as error:
        return refusal(unexpected(error, f"{method} of the JSON API"))


def misnamed(method: str, params: Mapping[str, Any]) -> str | None:
    """The parameter that was meant to be `arguments`, without which the call would go as if it had none."""
    if method not in _NAMED or "arguments" in params:
        return None
    return next((name for name in params if name in _MISNAMED), None)


async def _params(method: str, request: Request) -> Mapping[str, Any]:
    body = await whole_body(request)
    if body is None:
        raise MCPError(INVALID_PARAMS, "the body is larger than 4 MiB")
    if body and not is_json(request.scope):
        raise _NotJson
    try:
        params = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        raise MCPError(PARSE_ERROR, "the body is not valid JSON") from None
    if not isinstance(params, Mapping):
        raise MCPError(INVALID_PARAMS, "the body must be an object: the params of the method")
    if name := misnamed(method, params):
        raise MCPError(INVALID_PARAMS, f"{name}: not a parameter of {method}; did you mean `arguments`?")
    if len(body) > _LONG:
        await asyncio.sleep(0)  # others go first: to parse it took milliseconds, and so does what comes next
    return params


def _json(content: Any, status: int = 200) -> Response:
    """A response with what a server may have sent: numbers that JSON does not have become null, as on MCP's way."""
    return Response(to_json(content, inf_nan_mode="null"), status, media_type="application/json")


def refusal(error: MCPError) -> Response:
    """The response with an error, and with the time to wait where it tells one."""
    status = 415 if isinstance(error, _NotJson) else _status(error.code)
    response = _json({"error": error.error.model_dump(mode="json", exclude_none=True)}, status)
    data = error.error.data
    retry_in = data.get("retryIn") if isinstance(data, Mapping) else None
    if isinstance(retry_in, int | float) and 0 <= retry_in < _LONGEST_WAIT:
        response.headers["Retry-After"] = str(math.ceil(retry_in))
    return response


def _status(code: int) -> int:
    return _STATUS.get(code) or ERROR_CODE_HTTP_STATUS.get(code, 500)


_CLIENT = {"name": "fastmcp-aggregator-json", "version": "1"}
ENVELOPE: Mapping[str, Any] = {
    PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_META_KEY: _CLIENT,
    CLIENT_CAPABILITIES_META_KEY: {},
}
"""The fields of a message that such a program does not send."""

REQUEST_ID = "X-Request-Id"
"""The header with the id of a request, in which it may bring one, and gets it back."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,128}")


def request_id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The id that a request of such a program brings, or a new one."""
    told = next((value for name, value in headers if name == b"x-request-id"), b"")
    return told.decode() if _REQUEST_ID.fullmatch(told) else secrets.token_hex(8)


def enveloped(meta: Any) -> dict[str, Any]:
    """The `_meta` of a request of such a program as a modern client's; what it declares that it can do counts."""
    if not isinstance(meta, Mapping):
        return dict(ENVELOPE)
    declared = meta.get(CLIENT_CAPABILITIES_META_KEY)
    return {**meta, **ENVELOPE, **({CLIENT_CAPABILITIES_META_KEY: declared} if isinstance(declared, Mapping) else {})}


async def _exchange(
    server: Server[Any], method: str, params: Mapping[str, Any], request: Request, request_id: str
) -> dict[str, Any]:
    """Serve one request by an app's SDK server. `request` is the HTTP request that it came with.

    Raises:
        MCPError: the error that an MCP client would get.
        pydantic.ValidationError: the parameters have not the shape that the method prescribes.
    """
    connection = Connection.from_envelope(LATEST_MODERN_VERSION, _CLIENT, {})
    context = _OneWay(message_metadata=ServerMessageMetadata(request_context=request), request_id=request_id)
    runner = ServerRunner(server, connection, {})
    try:
        return await runner.on_request(context, method, {**params, "_meta": enveloped(params.get("_meta"))})
    finally:
        del runner.on_request  # which refers to the runner, so that only a garbage collection would find both
        await aclose_shielded(connection)


@dataclass
class _OneWay:
    """The dispatch context of a request whose client gets nothing but the answer."""

    message_metadata: ServerMessageMetadata
    request_id: str
    transport: TransportContext = field(default_factory=lambda: TransportContext(kind="json", can_send_request=False))
    can_send_request: bool = False
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        return

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        return
