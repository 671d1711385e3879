"""A person's browser: sent to the authorization server, and back to a port here, or to an address that is pasted."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from socket import socket
from urllib.parse import quote

from fastmcp.client.oauth_callback import create_callback_html
from fastmcp.utilities.ui import create_secure_html_response
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastmcp_aggregator.access.listening import listening_socket
from fastmcp_aggregator.cli.terminal.console import say
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.front.http.server import serve_http
from fastmcp_aggregator.oauth.authorization import (
    Authorization,
    AuthorizationResponse,
    Refused,
    authorization_response,
    redirect_uri,
)

PERSON_BOUND = 300.0
"""Seconds that a person has to log in."""
_MOST_PASTED = 8192
_HOST = "localhost"
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def has_browser() -> bool:
    """True if the person sees a browser that is opened here: not over SSH, and not without a display."""
    if "BROWSER" in os.environ:
        return True
    if "SSH_CONNECTION" in os.environ or "SSH_TTY" in os.environ:
        return False
    return sys.platform in ("win32", "darwin") or any(name in os.environ for name in _DISPLAYS)


class Callback:
    """A listener for the browser's way back, at `address` if it is from the right issuer."""

    def __init__(self, listener: socket, path: str, issuer: str) -> None:
        self._origin = f"http://{_HOST}:{listener.getsockname()[1]}"
        self.address = redirect_uri(f"{self._origin}{path}", issuer)
        self._authorization: Authorization | None = None
        self._response: asyncio.Future[AuthorizationResponse] = asyncio.get_running_loop().create_future()

    async def response(self, authorization: Authorization, *, opens_browser: bool) -> AuthorizationResponse:
        """Send a person to log in; what the browser brings.

        Raises:
            Refused: what was pasted is not that, and nothing more is.
            AggregatorError: nobody has come back in time.
        """
        self._authorization = authorization
        address = authorization.address
        if opens_browser:
            say(f"Log in at: {address}")
            if not await asyncio.to_thread(webbrowser.open, address):
                say("No browser could be opened; open the address yourself.")
        else:
            say(f"Open this address in a browser, on any machine, and log in:\n\n  {address}\n")
        if is_pasting := not opens_browser or sys.stdin.isatty():
            say(
                f"At the end the browser is sent to an address that begins with {self.address}. If it shows an error "
                "there, copy that address from it, paste it here, and press Enter:"
            )
        say(f"Waiting for the login, for {PERSON_BOUND / 60:g} minutes.")
        pasting = asyncio.create_task(self._paste(authorization)) if is_pasting else None
        try:
            async with asyncio.timeout(PERSON_BOUND):
                return await self._response
        except TimeoutError:
            raise AggregatorError(
                f"nobody logged in within {PERSON_BOUND / 60:g} minutes; run the command again"
            ) from None
        finally:
            if pasting is not None:
                pasting.cancel()

    async def take(self, request: Request) -> Response:
        """Wait for the browser's response. The first that is of this login counts; anybody may send others."""
        try:
            came_to = f"{self._origin}{quote(request.scope['path'], errors='replace')}"
            response = authorization_response(f"{came_to}?{request.url.query}")
            self._take(response)
        except Refused as error:
            return create_secure_html_response(create_callback_html(str(error), is_success=False), 400)
        if "error" in response.query:
            words = "The login failed. The terminal in which you began it shows what the authorization server said."
            return create_secure_html_response(create_callback_html(words, is_success=False), 400)
        return create_secure_html_response(create_callback_html("", title="Logged in"))

    async def _paste(self, authorization: Authorization) -> None:
        """Take the address that a person pastes: in one line, or in several, as mails and terminals break it."""
        lines, so_far, refused = _lines(), "", None
        while line := await lines.get():
            if not line.strip():
                continue
            so_far = ("" if "://" in line else so_far[-_MOST_PASTED:]) + line.strip()
            try:
                response = authorization_response(so_far)
                authorization.require_valid(response)
            except Refused as error:
                refused = error
                say(f"{error}. Paste the whole address, or the rest of it:")
            else:
                self._answer(response)
        if refused is not None and not self._response.done():
            self._response.set_exception(refused)  # a program has written it, which writes nothing more

    def _take(self, response: AuthorizationResponse) -> None:
        """Raises: Refused: it is not the answer; if it is of this login, it ends it all the same."""
        if self._authorization is None or not self._authorization.matches_state(response):
            raise Refused("This belongs to another login; nothing was done.")
        self._answer(response)
        self._authorization.require_valid(response)

    def _answer(self, response: AuthorizationResponse) -> None:
        if not self._response.done():
            self._response.set_result(response)


@asynccontextmanager
async def listening(port: int | None, path: str, issuer: str) -> AsyncIterator[Callback]:
    """A callback that is served meanwhile, below this path. Raises AggregatorError: the port cannot be used."""
    listener = listening_socket(_HOST, port or 0)
    callback, stop, up = Callback(listener, path, issuer), asyncio.Event(), asyncio.Event()
    app = Starlette(routes=[Route("/{path:path}", callback.take)])
    serving = asyncio.create_task(serve_http(app, listener, stop, on_listening=up.set))
    try:
        await up.wait()
        yield callback
    finally:
        stop.set()
        await serving


def _lines() -> asyncio.Queue[str]:
    """The lines of the input; an empty one is its end. The thread is left to itself if that never comes."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the program is at its end
            while line := sys.stdin.readline() if sys.stdin is not None else "":
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, name="paste", daemon=True).start()
    return lines
