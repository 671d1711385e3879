"""The JSON API as an OpenAPI description."""

from __future__ import annotations

from typing import Any

from fastmcp_aggregator.front.http.rest import JSON_METHODS
from fastmcp_aggregator.protocol.methods import COMPLETE, PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from fastmcp_aggregator.version import VERSION

_ANY_OBJECT = {"type": "object", "additionalProperties": True}
_NAMED = {"name": {"type": "string"}, "arguments": _ANY_OBJECT}
_PARAMS: dict[str, dict[str, Any]] = {
    TOOLS_CALL.name: {"type": "object", "required": ["name"], "properties": _NAMED},
    PROMPTS_GET.name: {"type": "object", "required": ["name"], "properties": _NAMED},
    RESOURCES_READ.name: {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string"}}},
    COMPLETE.name: {
        "type": "object",
        "required": ["ref", "argument"],
        "properties": {"ref": _ANY_OBJECT, "argument": _ANY_OBJECT},
    },
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": {}},
        }
    },
}


def description(path: str) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for method in JSON_METHODS:
        paths[f"{path}/{method}"] = {"post": _operation(method, [])}
        group = {"name": "group_id", "in": "path", "required": True, "schema": {"type": "string"}}
        paths[f"/groups/{{group_id}}{path}/{method}"] = {"post": _operation(method, [group])}
    return {
        "openapi": "3.1.0",
        "info": {"title": "fastmcp_aggregator: the JSON API", "version": VERSION},
        "paths": paths,
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(method: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "operationId": ("group_" if parameters else "") + method.replace("/", "_"),
        "summary": f"The MCP method `{method}`: its params as the body, its result as the answer.",
        "parameters": parameters,
        "requestBody": {"content": {"application/json": {"schema": _PARAMS.get(method, _ANY_OBJECT)}}},
        "responses": {
            "200": {"description": "The result.", "content": {"application/json": {"schema": _ANY_OBJECT}}},
            "default": {"description": "An error.", "content": {"application/json": {"schema": _ERROR}}},
        },
    }
