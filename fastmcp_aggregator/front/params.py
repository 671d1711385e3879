"""The parameters of a request: checked as far as we look into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from pydantic_core import from_json, to_json

from fastmcp_aggregator.front import errors

Params = Mapping[str, Any]


def checked_params(ctx: ServerRequestContext[Any, Any]) -> Params:
    """The request's parameters, which may be absent.

    Raises:
        MCPError: they, or their `_meta`, are not objects.
    """
    params = ctx.params if ctx.params is not None else {}
    if not isinstance(params, Mapping):
        raise errors.invalid_params("params: must be an object")
    require_object(params, "_meta")
    return params


def text_param(params: Params, name: str) -> str:
    """A parameter that must be a string."""
    value = params.get(name)
    if not isinstance(value, str):
        raise errors.invalid_params(f"{name}: must be a string")
    return value


def require_object(params: Params, name: str) -> None:
    """A parameter that must be an object, where it is given."""
    value = params.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise errors.invalid_params(f"{name}: must be an object")


def require_readable(ctx: ServerRequestContext[Any, Any]) -> None:
    """Parameters must be JSON that every parser takes.

    The SDK reads what modern clients send over HTTP with Python's parser, which takes half a surrogate pair for a text
    and nests five times as deep as others.
    """
    try:
        from_json(to_json(ctx.params))
    except ValueError:
        raise errors.invalid_params("params: nested too deeply, or a text is not valid Unicode") from None
