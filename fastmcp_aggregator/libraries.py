"""Compatibility checks: the private parts of libraries that are used, and the error for a version without them.

Without this a version that has moved or renamed something would be noticed by a traceback at the first call that needs
it, or not at all: a method that overrides nothing is just never called.

On the side of the clients they are used in `library_internals.py`, on the side of the servers in
`children/session/session.py`; what a subclass overrides or uses of its own base, where the subclass is.
`tests/test_libraries.py` finds what is used elsewhere, or is not listed here, and
`tests/children/test_children_sdk_seams.py` holds what each part is relied on to do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import unwrap
from typing import Any

from fastmcp_aggregator.errors import DependencyError

Parts = Mapping[str, tuple[str, ...]]
"""By the path of a class, function or module: attributes, and parameters (of a class: of its constructor)."""

OF_WINDOWS: Parts = {"mcp.os.win32.utilities": ("_create_job_object", "_maybe_assign_process_to_job")}

OF_SERVING: Parts = {
    **(OF_WINDOWS if sys.platform == "win32" else {}),
    "fastmcp.resources.ResourceTemplate": ("_read",),
    "fastmcp.server.auth.AuthProvider": ("_get_resource_url",),
    "fastmcp.server.dependencies.FastMCPRequestContext": ("_srctx",),
    "fastmcp.server.providers.LocalProvider": ("_components",),
    "fastmcp.server.providers.Provider": (
        "_list_tools",
        "_list_resources",
        "_list_resource_templates",
        "_list_prompts",
        "_get_tool",
        "_get_resource",
        "_get_resource_template",
        "_get_prompt",
    ),
    "fastmcp.server.providers.proxy.ProxyClient": ("_session_kwargs", "forward_incoming_headers"),
    "fastmcp.server.server.FastMCP": ("_lifespan_manager", "_mcp_server", "_transforms"),
    "fastmcp.server.transforms.search.BM25SearchTransform": ("_make_call_tool", "_make_search_tool", "_search"),
    "fastmcp.tools.Tool": ("_validate_tool_name",),
    "httpcore2.AsyncConnectionPool": ("_network_backend",),
    "mcp.client.session.ClientSession": (
        "_build_capabilities",
        "_dispatcher",
        "_intercept_notification",
        "_on_request",
        "_stamp",
        "_x_mcp_header_maps",
    ),
    "mcp.client.streamable_http.streamable_http_client": ("max_sse_event_size",),
    "mcp.server.connection.Connection": (
        "exit_stack",
        "from_envelope",
        "has_standalone_channel",
        "initialize_accepted",
        "initialized",
        "outbound",
        "state",
    ),
    "mcp.server.lowlevel.server.Server": ("get_tool_input_schema", "middleware", "server_info_stamp"),
    "mcp.server.streamable_http.StreamableHTTPServerTransport": (
        "_idle_timeout",
        "_requests_in_flight",
        "idle_scope",
        "is_terminated",
    ),
    "mcp.server.streamable_http_manager.StreamableHTTPSessionManager": (
        "_admit_session",
        "_serve_opening_request",
        "_server_instances",
        "_session_creation_lock",
        "_session_owners",
    ),
    "mcp.shared.jsonrpc_dispatcher.JSONRPCDispatcher": ("_allocate_id",),
    "mcp.server.session.ServerSession": ("_connection", "_request_outbound"),
    "sse_starlette.sse.AppStatus": ("should_exit",),
    "uvicorn.server.Server": ("capture_signals", "should_exit", "startup"),
}

_LIBRARIES = {
    "fastmcp": "fastmcp",
    "httpcore2": "httpcore2",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "sse_starlette": "sse-starlette",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
}
"""Distribution names, by imported package."""
_BOUNDED = ("fastmcp", "mcp")
"""The libraries of which `pyproject.toml` allows those versions alone with which this was tested."""


def require_parts(parts: Parts) -> None:
    """Check that the libraries, which are imported by now, have these parts. Raises DependencyError: one is missing."""
    for path, names in parts.items():
        found = _loaded(path)
        known = _names_in(found)
        for name in names:
            if name not in known and not hasattr(found, name):
                raise _unusable(path, f"it has no {path}.{name}")


@contextmanager
def usable_libraries() -> Iterator[None]:
    """Translate the ImportErrors of libraries that are imported inside.

    Raises:
        DependencyError: a library does not have something that is imported from it.
    """
    try:
        yield
    except ImportError as error:
        if isinstance(error, DependencyError) or (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        raise _unusable(str(error.name), error.msg) from error


def _loaded(path: str) -> Any:
    """The object that the path leads to, if it is loaded, or None."""
    module, _, name = path.rpartition(".")
    return sys.modules.get(path) or getattr(sys.modules.get(module), name, None)


def _names_in(found: Any) -> set[str]:
    """The names in a function, or in the constructors of a class, where instances get their attributes."""
    if not isinstance(found, type):
        makers = [found]
    else:
        makers = [vars(cls)["__init__"] for cls in found.__mro__ if "__init__" in vars(cls)]
    codes = [getattr(unwrap(maker), "__code__", None) for maker in makers]
    return {name for code in codes if code is not None for name in (*code.co_names, *code.co_varnames)}


def installed_version(library: str) -> str | None:
    """Return the version of what is installed; None if it is not, or in another way."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - for the error alone

    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _unusable(path: str, why: str) -> DependencyError:
    library = _LIBRARIES[path.partition(".")[0]]
    number = installed_version(library)
    what = f"{library} is not installed" if number is None else f"{library} {number} cannot be used"
    wanted = _wanted()
    advice = f"; fastmcp-aggregator works with {' and '.join(wanted)}" if wanted else ""
    return DependencyError(f"{what}: {why}{advice}")


def _wanted() -> list[str]:
    """The versions with which this works, as the installed package declares them."""
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415 - for the error alone

    try:
        declared = requires("fastmcp-aggregator") or []
    except PackageNotFoundError:  # run from its sources, without having been installed
        return []
    found = (re.fullmatch(r"([\w-]+)([<>=!~][^;]*)", line) for line in declared)
    bounds = {each[1]: sorted(each[2].split(","), reverse=True) for each in found if each is not None}
    return [f"{library}{','.join(bounds[library])}" for library in _BOUNDED if library in bounds]
