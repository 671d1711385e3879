"""A person's browser: sent to the authorization server, and back to a port here, or to an address that is pasted."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from socket import socket
from typing import Any

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
from fastmcp_aggregator.oauth.authorization import Refused, authorization_response

PERSON_BOUND = 300.0
"""Seconds that a person has to log in."""
_HOST = "localhost"
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def has_browser() -> bool:
    """Whether a browser that is opened here is before the person: not over SSH, and not without a display."""
    if "BROWSER" in os.environ:
        return True
    if "SSH_CONNECTION" in os.environ or "SSH_TTY" in os.environ:
        return False
    return sys.platform in ("win32", "darwin") or any(name in os.environ for name in _DISPLAYS)


class Callback:
    """The address to which a browser comes back, which is listened on."""

    def __init__(self, listener: socket, path: str) -> None:
        self._listener = listener
        self._path = path
        self._response: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

    @property
    def address(self) -> str:
        return f"http://{_HOST}:{self._listener.getsockname()[1]}{self._path}"

    async def response(self, address: str, *, opens_browser: bool) -> Mapping[str, str]:
        """Send a person to an address; the query with which the browser is back.

        Raises:
            Refused: what was pasted is not that.
            AggregatorError: nobody has come back in time.
        """
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
        try:
            async with asyncio.timeout(PERSON_BOUND):
                return await self._first(is_pasting=is_pasting)
        except TimeoutError:
            raise AggregatorError(
                f"nobody logged in within {PERSON_BOUND / 60:g} minutes; run the command again"
            ) from None

    async def _first(self, *, is_pasting: bool) -> Mapping[str, str]:
        """What the browser brings or the person pastes, whichever is first."""
        if not is_pasting:
            return await self._response
        pasted = _line()
        both: set[asyncio.Future[Any]] = {self._response, pasted}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not self._response.done() and not pasted.result().strip():
            return await self._response  # nobody is there to paste
        return self._response.result() if self._response.done() else authorization_response(pasted.result())

    async def take(self, request: Request) -> Response:
        """What a browser brings. The first counts."""
        try:
            response = authorization_response(f"?{request.url.query}")
        except Refused as error:
            return create_secure_html_response(create_callback_html(str(error), is_success=False), 400)
        if not self._response.done():
            self._response.set_result(response)
        if "error" in response:
            words = "The login failed. The terminal in which you began it shows what the authorization server said."
            return create_secure_html_response(create_callback_html(words, is_success=False), 400)
        return create_secure_html_response(create_callback_html("", title="Logged in"))


@asynccontextmanager
async def listening(port: int | None, path: str) -> AsyncIterator[Callback]:
    """A callback that is served meanwhile.

    Raises:
        AggregatorError: the port cannot be used.
    """
    listener = listening_socket(_HOST, port or 0)
    callback, stop, up = Callback(listener, path), asyncio.Event(), asyncio.Event()
    app = Starlette(routes=[Route(path, callback.take)])
    serving = asyncio.create_task(serve_http(app, listener, stop, on_listening=up.set))
    try:
        await up.wait()
        yield callback
    finally:
        stop.set()
        await serving


def _line() -> asyncio.Future[str]:
    """The next line of the input. Its thread is left to itself if the line never comes."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def tell(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        text = sys.stdin.readline() if sys.stdin is not None else ""
        try:
            loop.call_soon_threadsafe(tell, text)
        except RuntimeError:
            return  # the program is at its end

    threading.Thread(target=read, name="paste", daemon=True).start()
    return line
