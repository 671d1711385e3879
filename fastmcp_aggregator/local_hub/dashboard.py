"""The dashboard of a local hub: on loopback, on a free port, behind an address that only its user learns.

A token that is good once, for a minute, leads to the page; the page and all that it loads are below an address of
random characters, for all addresses in it are relative. Whoever knows neither is answered with 404. On Linux others can
read the command line of a browser, and so its token: there it is good for connections of the hub's user alone.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.aggregator import Aggregator
from fastmcp_aggregator.front.http.security import OnRefused
from fastmcp_aggregator.front.http.server import serve_http

_HOST = "127.0.0.1"
_TOKEN_LIFE = 60.0
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


class HubDashboard:
    """The dashboard of one hub, which is served from the first request for it until the hub ends."""

    def __init__(self, app: Aggregator, ending: asyncio.Event) -> None:
        self._app = app
        self._ending = ending
        self._secret_url: SecretUrl | None = None
        self._origin = ""
        self._serving: asyncio.Task[None] | None = None

    def open(self) -> str:
        """The address of the page, which is good once. Raises AggregatorError: no port can be had."""
        if self._secret_url is None:
            refused = self._app.policies.authentication_failed
            self._secret_url = SecretUrl(
                self._app.http_app(), asyncio.get_running_loop().time, refused, is_of_this_user
            )
            listener = listening_socket(_HOST, 0)
            self._origin = url_of(listener, _HOST)
            self._serving = asyncio.create_task(serve_http(self._secret_url, listener, self._ending), name="dashboard")
        return self._origin + self._secret_url.new_address()

    async def close(self) -> None:
        """Wait for its end, once the hub is ending."""
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)


class SecretUrl:
    """ASGI middleware that serves an app below a secret URL, to which one-time tokens redirect."""

    def __init__(
        self,
        app: ASGIApp,
        clock: Callable[[], float],
        on_refused: OnRefused,
        is_known: Callable[[Scope], bool] = lambda _: True,
    ) -> None:
        """`is_known` says whether a peer may use a token; `on_refused` is called for each request that gets 404."""
        self._app = app
        self._clock = clock
        self._on_refused = on_refused
        self._is_known = is_known
        self._secret = f"/{secrets.token_urlsafe(24)}"
        self._tokens: dict[str, float] = {}
        """The expiry of each token."""

    def new_address(self) -> str:
        """The path that leads to the page, once."""
        now = self._clock()
        self._tokens = {token: until for token, until in self._tokens.items() if until > now}
        token = secrets.token_urlsafe(24)
        self._tokens[token] = now + _TOKEN_LIFE
        return f"/open/{token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        start, _, rest = path[1:].partition("/")
        if secrets.compare_digest(f"/{start}".encode(), self._secret.encode()) and "/" in path[1:]:
            await self._app({**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}, receive, send)
        elif start == "open" and scope["method"] == "GET" and self._is_good(rest, scope):
            await RedirectResponse(f"{self._secret}/", 303, _HEADERS)(scope, receive, send)
        else:
            client = scope.get("client") or ("",)
            # A token may be good yet, for its own user; and the page's address is, however it was misspelt.
            told = "/open" if start == "open" else path.replace(self._secret[1:], "…")
            self._on_refused(client[0], told, "the address leads nowhere")
            await PlainTextResponse("Not Found", 404, _HEADERS)(scope, receive, send)

    def _is_good(self, token: str, scope: Scope) -> bool:
        is_known = token in self._tokens and self._is_known(scope)  # to look whose a connection is takes longer
        return is_known and self._tokens.pop(token) > self._clock()


_CONNECTIONS = Path("/proc/net/tcp")
_ESTABLISHED = "01"
_ROOT = 0
"""Root may do what it likes, and connects for others, such as the browser of the Windows that Linux runs in."""


def is_of_this_user(scope: Mapping[str, Any]) -> bool:
    """True if the client of an ASGI request over 127.0.0.1 is a process of ours, or of root; true of any client where
    nobody can read other users' command lines, or where the user is unknown: on other systems than Linux.
    """
    if sys.platform != "linux":
        return True
    user = _user_of(tuple(scope.get("client") or ()), tuple(scope.get("server") or ()))
    return user in (os.getuid(), _ROOT)


def _user_of(client: tuple[str | int, ...], server: tuple[str | int, ...]) -> int | None:
    """The user of a connection's socket at the client's end; None: there is no such connection."""
    try:
        ends = [_as_listed(*client), _as_listed(*server)]
        rows = map(str.split, _CONNECTIONS.read_text().splitlines())
        return next((int(row[7]) for row in rows if row[1:4] == [*ends, _ESTABLISHED]), None)
    except (OSError, TypeError, ValueError, IndexError):
        return None


def _as_listed(host: str | int, port: str | int) -> str:
    (address,) = struct.unpack("=I", socket.inet_aton(str(host)))
    return f"{address:08X}:{int(port):04X}"
