"""Protected resource metadata (RFC 9728), by which clients without a token find who gives them one: for the MCP
endpoint, and for that of each group, because a client compares the address in it with the one that it calls.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from fastmcp.server.auth import AuthProvider, MultiAuth, RemoteAuthProvider
from mcp.server.auth.routes import build_resource_metadata_url, cors_middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fastmcp_aggregator.groups import is_group_id
from fastmcp_aggregator.library_internals import resource_url_of

_CACHED = {"Cache-Control": "public, max-age=3600"}
_METHODS = ["GET", "OPTIONS"]


class IssuerMetadataProvider(RemoteAuthProvider):
    """FastMCP's, with issuers as they were written: clients compare them as text (RFC 8414, section 3.3), and as
    pydantic's URLs they would get a slash at their end.
    """

    def get_routes(self, mcp_path: str | None = None) -> list[Route]:
        self.set_mcp_path(mcp_path)

        async def serve(_: Request) -> Response:
            return _answer(self, resource_url_of(self, mcp_path))

        path = urlsplit(_metadata_url(self, mcp_path)).path
        return [Route(path, cors_middleware(serve, _METHODS), methods=_METHODS)]


class GroupMetadata:
    """The metadata of all groups whose MCP endpoints are at `path` below their own."""

    def __init__(self, provider: RemoteAuthProvider, path: str) -> None:
        self._provider = provider
        self._path = path
        self.general_url = _metadata_url(provider, path)
        """The address of the metadata of the MCP endpoint itself."""

    def url(self, group_id: str) -> str:
        return _metadata_url(self._provider, self._endpoint(group_id))

    def route(self) -> Route:
        """The route that serves it, alike for groups that exist and others: it does not give away which exist."""

        async def serve(request: Request) -> Response:
            group_id = request.path_params["group_id"]
            if not is_group_id(group_id):
                return PlainTextResponse("Not Found", 404)
            return _answer(self._provider, resource_url_of(self._provider, self._endpoint(group_id)))

        base = urlsplit(str(resource_url_of(self._provider))).path.rstrip("/")
        path = f"/.well-known/oauth-protected-resource{base}{self._endpoint('{group_id}')}"
        return Route(path, cors_middleware(serve, _METHODS), methods=_METHODS)

    def _endpoint(self, group_id: str) -> str:
        return f"/groups/{group_id}{self._path}"


def group_metadata(auth: AuthProvider | None, path: str) -> GroupMetadata | None:
    """The metadata of the groups; None, if `auth` names no authorization servers, or is one itself, for one address."""
    provider = auth.server if isinstance(auth, MultiAuth) else auth
    return GroupMetadata(provider, path) if isinstance(provider, RemoteAuthProvider) else None


def _metadata_url(provider: RemoteAuthProvider, endpoint: str | None) -> str:
    resource = resource_url_of(provider, endpoint)
    assert resource is not None, "a remote provider has a base URL"
    return str(build_resource_metadata_url(resource))


def _answer(provider: RemoteAuthProvider, resource: object) -> Response:
    documentation = provider.resource_documentation
    document: dict[str, Any] = {
        "resource": str(resource),
        "authorization_servers": [str(server) for server in provider.authorization_servers],
        "scopes_supported": provider.scopes_supported,
        "resource_name": provider.resource_name,
        "resource_documentation": None if documentation is None else str(documentation),
        "bearer_methods_supported": ["header"],
    }
    # RFC 9728, section 3.2: what has no values must be left out. Clients would ask for an empty scope.
    return JSONResponse({name: value for name, value in document.items() if value}, headers=_CACHED)
