"""Errors of a service: those that keep it from starting, and those that a client gets in place of a result."""

from __future__ import annotations

from mcp import MCPError

from fastmcp_aggregator.service.limits import INTERNAL_ERROR, INVALID_PARAMS, SERVER_ERROR


class ServiceError(Exception):
    """The service cannot start; the message says everything that is wrong."""


class ConfigurationError(ServiceError):
    """The settings cannot be used; the message says which, and why, without their values."""


class InvalidServerError(ServiceError):
    """The server offers something that cannot be served."""


def not_serving(state: str) -> MCPError:
    return MCPError(code=SERVER_ERROR, message=f"the server is {state.replace('_', ' ')}; try again later")


def too_fast(per_minute: int, burst: int) -> MCPError:
    message = f"too many requests: at most {per_minute} a minute, and {burst} at once; try again later"
    return MCPError(code=SERVER_ERROR, message=message)


def too_many(waiting: int) -> MCPError:
    return MCPError(code=SERVER_ERROR, message=f"{waiting} requests are waiting already; try again later")


def timed_out(what: str, seconds: float) -> MCPError:
    return MCPError(code=INTERNAL_ERROR, message=f"{what} took more than {seconds:g} s")


def too_large(what: str, megabytes: float) -> MCPError:
    return MCPError(code=INTERNAL_ERROR, message=f"the response of {what} has more than {megabytes:g} MB")


def no_messages(prompt: str) -> MCPError:
    return MCPError(code=INTERNAL_ERROR, message=f"the prompt {prompt} has no messages")


def unknown_tool(name: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=f"there is no tool {name!r}")
