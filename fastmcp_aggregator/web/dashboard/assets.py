"""The page's own files: what a browser loads before it knows anything about the servers. Open to everybody."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

PAGE = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_AUTH_MARK = b'data-auth="none"'
"""A mark in the page, replaced by whether it has to ask for a key."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "media-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing is loaded from elsewhere, and no text that a server sends can become a script or markup."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""On everything that belongs to the page."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, as it is sent."""

    content: bytes
    media_type: str
    etag: str

    def response(self, request: Request) -> Response:
        """The file, or 304 for a browser that has it. It is asked for each time, so that an upgrade shows at once."""
        headers = {**HEADERS, "ETag": self.etag, "Cache-Control": "no-cache"}
        if matches(request, self.etag):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def asset_response(request: Request, name: str, *, has_auth: bool) -> Response:
    asset = assets(has_auth).get(name)
    if asset is None:
        return PlainTextResponse("Not Found", 404)
    return asset.response(request)


@cache
def assets(has_auth: bool) -> dict[str, Asset]:
    """All files by name. There is no way to name any other, so a path cannot lead out of the folder."""
    found = {}
    for file in files("fastmcp_aggregator.web.dashboard").joinpath("static").iterdir():
        media_type = _TYPES.get("." + file.name.rpartition(".")[2])
        if media_type is not None:
            content = file.read_bytes()
            if file.name == PAGE and has_auth:
                content = content.replace(_AUTH_MARK, b'data-auth="key"')
            found[file.name] = Asset(content, media_type, etag_of(content))
    return found


def etag_of(content: bytes) -> str:
    """A strong validator (RFC 9110, 8.8.3)."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def matches(request: Request, etag: str) -> bool:
    """True if the browser has this already (RFC 9110, 13.1.2)."""
    given = request.headers.get("if-none-match", "")
    return etag in (part.strip().removeprefix("W/") for part in given.split(","))
