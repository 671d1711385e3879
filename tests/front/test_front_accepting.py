"""Connections that come faster than they are accepted, or when there are no file descriptors left for them."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from support.harness import PATIENCE, config, free_port, lean, running
from support.serving import served

from fastmcp_aggregator.front.http.server import reporting_shortage

pytestmark = pytest.mark.process


async def test_connections_that_come_while_the_program_is_busy_are_kept_for_it(tmp_path: Path) -> None:
    """Far more than are accepted in a turn."""
    port, document = free_port(), tmp_path / "mcp.json"
    document.write_text(json.dumps(config(a=lean())))
    command = [sys.executable, "-m", "fastmcp_aggregator", str(document), "--transport", "http", "--port", str(port)]
    async with running(*command, handshake=False) as server:
        await server.said("serving on")
        server.process.send_signal(signal.SIGSTOP)
        opening = [asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        connections = await asyncio.wait_for(asyncio.gather(*opening), PATIENCE)
        server.process.send_signal(signal.SIGCONT)
        for reader, writer in connections:
            writer.write(b"GET /elsewhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"404" in await asyncio.wait_for(reader.readline(), PATIENCE)
            writer.close()
        server.process.terminate()
        assert await server.wait() == 0


UNHURRIED = f"""
import asyncio, signal, sys
from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.access.listening import listening_socket
from fastmcp_aggregator.front.http.server import HttpTimings, serve_http

async def main():
    app = build_aggregator(sys.argv[1])
    timings = HttpTimings(
        quiet_bound={PATIENCE},  # a busy machine takes its time to answer what is in flight
        head_bound=1.5,  # for so long, who is silent is waited for
        sweep_interval=0.1,
    )
    stop, tell = asyncio.Event(), lambda: print("serving on", file=sys.stderr, flush=True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    with listening_socket("127.0.0.1", int(sys.argv[2])) as listener:
        times = dict(drain_wait=float(sys.argv[3]), timings=timings)
        await serve_http(app.http_app(path="/mcp"), listener, stop, on_listening=tell, **times)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("drain_wait", "statuses"), [("0", {b"HTTP/1.1 200", b"HTTP/1.1 503"}), ("0.1", {b"HTTP/1.1 200"})]
)
async def test_no_connection_that_was_accepted_is_reset_at_the_end(
    tmp_path: Path, drain_wait: str, statuses: set[bytes]
) -> None:
    """Not even one that stands in the queue of the system: who connects is answered, or refused at once."""
    port, document = free_port(), tmp_path / "mcp.json"
    document.write_text(json.dumps(config(a=lean())))
    command = [sys.executable, "-c", UNHURRIED, str(document), str(port), drain_wait]

    async def call_until_refused() -> set[bytes]:
        statuses = set()
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return statuses
            writer.write(b"POST /mcp/tools/list HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n")
            statuses.add((await reader.readline())[:12])
            writer.close()

    async with running(*command, handshake=False) as server:
        await server.said("serving on")
        silent, _ = await asyncio.open_connection("127.0.0.1", port)
        clients = [asyncio.create_task(call_until_refused()) for _ in range(20)]
        await asyncio.sleep(0.1)  # of traffic
        server.process.send_signal(signal.SIGTERM)
        found = await asyncio.wait_for(asyncio.gather(*clients), PATIENCE)
        assert set.union(*found) <= statuses
        assert await silent.readline() == b""
        assert await server.wait() == 0


def connecting(address: tuple[str, int]) -> socket.socket:
    """A connection of which only the handshake has begun, so that nobody waits for it."""
    client = socket.socket()
    client.setblocking(False)
    if sys.platform == "linux":
        # Its last part of the handshake goes with the first bytes that it sends.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    client.connect_ex(address)
    return client


def is_connected(client: socket.socket) -> bool:
    return bool(select.select([], [client], [], 0)[1])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the queue is only made shorter")
@pytest.mark.parametrize("drain_wait", [0.0, 0.01])
async def test_a_handshake_that_is_half_done_when_the_end_begins_is_finished_and_answered(drain_wait: float) -> None:
    """Its client is connected, and cannot know that the program is not."""
    async with served(Starlette(), drain_wait=drain_wait) as front:
        address = ("127.0.0.1", int(front.origin.rpartition(":")[2]))
        with connecting(address) as client:
            assert is_connected(client)
            front.stop.set()
            while True:
                with connecting(address) as other:
                    if not is_connected(other):
                        break
                await asyncio.sleep(0)
            client.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 100), PATIENCE)
            assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 503"))


async def test_a_shortage_is_told_once_and_other_errors_go_where_they_went_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop, others = asyncio.get_running_loop(), list[str]()

    def before(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        others.append(context["message"])

    lacking = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    loop.set_exception_handler(before)
    with reporting_shortage():
        for _ in range(5):
            loop.call_exception_handler({"message": "accept", "exception": lacking, "socket": object()})
        loop.call_exception_handler({"message": "a file", "exception": lacking})
        loop.call_exception_handler({"message": "a reset", "exception": ConnectionResetError(), "socket": object()})
        loop.call_exception_handler({"message": "no exception"})
    assert (
        len([message for message in caplog.messages if "new connections wait until others are closed" in message]) == 1
    )
    assert others == ["a file", "a reset", "no exception"]
    assert loop.get_exception_handler() is before


async def test_without_a_handler_other_errors_are_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    with reporting_shortage():
        asyncio.get_running_loop().call_exception_handler({"message": "something else"})
    assert caplog.messages == ["something else"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /\xff HTTP/1.1\r\n\r\n", b" 400 "),
        (b"nonsense\r\n\r\n", b" 400 "),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b" 404 "),
    ],
)
async def test_what_needs_no_credentials_fills_no_log(
    head: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(Starlette()) as front:
        logging.getLogger("uvicorn.error").addHandler(caplog.handler)  # its records do not reach the root
        try:
            for _ in range(40):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(front.origin.rpartition(":")[2]))
                writer.write(head)
                assert status in await asyncio.wait_for(reader.readline(), PATIENCE)
                writer.close()
        finally:
            logging.getLogger("uvicorn.error").removeHandler(caplog.handler)
    assert [record.levelname for record in caplog.records].count("WARNING") < 30
