"""Serving on stdio or HTTP until the client leaves or a signal comes, after which calls in flight are finished."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime

import anyio
import uvicorn
from anyio.abc import TaskStatus

from fastmcp_aggregator.service.app import Service
from fastmcp_aggregator.service.errors import ConfigurationError
from fastmcp_aggregator.service.http import http_app
from fastmcp_aggregator.service.limits import DRAIN_TIMEOUT
from fastmcp_aggregator.service.offer import checked_tools
from fastmcp_aggregator.service.settings import ServiceSettings

logger = logging.getLogger(__name__)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(settings: ServiceSettings) -> None:
    """Send everything to stderr, that of libraries too: lines for people, or JSON in production."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.profile == "production":
        handler.setFormatter(_Json())
    else:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.root.handlers = [handler]
    logging.root.setLevel(settings.log_level.upper())
    for name in ("fastmcp", "uvicorn", "uvicorn.access", "uvicorn.error"):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True


_GRACE = 5
"""Seconds for clients to take the last answers, and to close their connections."""
_LOOK, _QUIET = 0.05, 5
"""Seconds between looks for answers that are being written, and the looks in a row that must find none."""


def run(server: Service) -> None:
    """Serve until the client leaves or a signal comes, and log to stderr.

    Raises: ServiceError, before anything is served.
    """
    set_up_logging(server.settings)
    anyio.run(serve, server)


async def serve(server: Service) -> None:
    await checked_tools(server)
    if server.settings.transport == "http":
        await _serve_http(server)
    else:
        await _serve_stdio(server)


async def _serve_stdio(server: Service) -> None:
    stdin = _EndingStdin()
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signal, server, stdin.end)
        await server.run_stdio_async(show_banner=False)
        # Descriptor 1 is the client's again, and what was printed may still be in a buffer: that goes to stderr.
        os.dup2(2, 1)
        tasks.cancel_scope.cancel()


async def _serve_http(server: Service) -> None:
    settings = server.settings
    assert settings.host is not None
    assert settings.port is not None
    bound = _bound(settings.host, settings.port)
    listener = _Listener(http_config(server))
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_on_signal, server, listener.end)
        await listener.serve(sockets=[bound])
        tasks.cancel_scope.cancel()


def http_config(server: Service) -> uvicorn.Config:
    """uvicorn's config. Its other parser takes the body of a request with an Upgrade for another request."""
    return uvicorn.Config(http_app(server), http="h11", ws="none", log_config=None, timeout_graceful_shutdown=_GRACE)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}, port {port}: {error.strerror}") from None


async def _end_on_signal(server: Service, end: Callable[[], None], *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            break
    # From here on a second signal ends the program at once.
    logger.info("shutting down: no new requests; those in flight have %s s", DRAIN_TIMEOUT)
    await server.requests.drain(DRAIN_TIMEOUT)
    with anyio.move_on_after(_GRACE):
        await _written()
    end()


async def _written() -> None:
    """Wait for the last answers to leave: on stdio, each has a thread then, besides the one that reads."""
    threads = anyio.to_thread.current_default_thread_limiter()
    quiet = 0
    while quiet < _QUIET:
        await anyio.sleep(_LOOK)
        quiet = quiet + 1 if threads.borrowed_tokens <= 1 else 0


class _EndingStdin:
    """Stdin, which can be made to end. A read of the real one cannot be interrupted, so a thread copies it."""

    def __init__(self) -> None:
        self._source = os.dup(0)
        self._copy, ours = socket.socketpair()
        os.dup2(ours.fileno(), 0)
        ours.close()
        threading.Thread(target=self._run, name="stdin", daemon=True).start()

    def end(self) -> None:
        self._copy.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            while data := os.read(self._source, 65536):
                self._copy.sendall(data)
            self._copy.shutdown(socket.SHUT_WR)
        except OSError:  # it was made to end
            return


class _Listener(uvicorn.Server):
    """uvicorn, without its own signal handling, which would cut the calls in flight."""

    def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]
        return nullcontext()

    def end(self) -> None:
        self.should_exit = True
