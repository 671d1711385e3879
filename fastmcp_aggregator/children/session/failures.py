"""Descriptions of session failures for users: no tracebacks, no addresses with secrets in them."""

from __future__ import annotations

import httpx2
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from fastmcp_aggregator.config.disclosure import shown
from fastmcp_aggregator.file_descriptors import shortage

_TELLING = (MCPError, httpx2.HTTPError, ValidationError)
"""The exceptions that say why it failed."""


def describe(error: BaseException) -> str:
    """One phrase for an exception that came out of a client session.

    Messages of HTTP errors quote the whole address, which may carry a secret, so they are said in our own words.
    """
    return shortage(error) or _in_words(_known_cause(error))


def _in_words(known: BaseException) -> str:
    if isinstance(known, MCPError):
        return shown("text", known.message, "remote")
    if isinstance(known, httpx2.HTTPStatusError):
        return f"HTTP status {known.response.status_code}"
    if isinstance(known, httpx2.ConnectError):
        return "connection refused or host not found"
    if isinstance(known, httpx2.TimeoutException):
        return "no answer in time"
    if isinstance(known, ValidationError):
        return _misshapen(known)
    return known.__class__.__name__


def _misshapen(error: ValidationError) -> str:
    """The path at which an answer is not as MCP prescribes; without its value."""
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ".".join(map(str, fault["loc"]))
    return shown("text", f"its answer is not as MCP prescribes ({error.title}, {path}: {fault['msg']})", "remote")


def _known_cause(error: BaseException) -> BaseException:
    """The most telling exception behind `error`: libraries wrap them in groups and in RuntimeErrors."""
    if isinstance(error, _TELLING):
        return error
    nested: list[BaseException] = []
    if isinstance(error, BaseExceptionGroup):
        nested += error.exceptions
    if error.__cause__ is not None:
        nested.append(error.__cause__)
    for inner in nested:
        found = _known_cause(inner)
        if isinstance(found, _TELLING):
            return found
    return error
