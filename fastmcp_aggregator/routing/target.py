"""The target of a request: its child, what the child calls the component, and how what comes back is published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.protocol.json_rpc import Params, Result
from fastmcp_aggregator.routing.addresses import Publish


def as_it_came(result: Result, publish: Publish) -> Result:
    """A result that has no addresses."""
    return result


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of one request."""

    child: Child | None
    """None: it is served here."""
    address: Params
    """The parameters that name the component as the child calls it: `name`, `uri` or `ref`; none may be named."""
    publish: Publish = None
    input_schema: Mapping[str, Any] | None = None
    """A tool's input schema, as the child lists it."""
    publish_result: Callable[[Result, Publish], Result] = as_it_came
    is_resource: bool = False
    """True if errors may name the child's address."""
    addressed: str | None = None
    """The part of the result that may have addresses."""
    is_app_page: bool = False
    mirrors_headers: bool = False
    """True if arguments of a tool stand in HTTP headers, too (2026-07-28, SEP-2243), as far as its table knows."""
