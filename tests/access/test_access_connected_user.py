"""Whose process is at the other end of a connection over loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.local_hub.dashboard import is_of_this_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody reads others' command lines")
CONNECT = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"
NOBODY = 65534


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        opened.settimeout(PATIENCE)
        yield opened


def scope_of(accepted: socket.socket) -> Mapping[str, Any]:
    return {"client": accepted.getpeername(), "server": accepted.getsockname()}


def test_a_process_of_ours_is_known(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert is_of_this_user(scope_of(accepted))


def test_who_has_left_is_not(listener: socket.socket) -> None:
    client = socket.create_connection(listener.getsockname())
    with listener.accept()[0] as accepted:
        scope = scope_of(accepted)
        client.close()
        assert not is_of_this_user(scope)


@pytest.mark.parametrize("scope", [{}, {"client": None}, {"client": ("x", 1), "server": ("127.0.0.1", 2)}])
def test_an_end_that_is_unknown_is_not(scope: Mapping[str, Any]) -> None:
    assert not is_of_this_user(scope)


@pytest.mark.process
@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
def test_a_process_of_another_user_is_not(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["/usr/bin/env", "python3", "-c", CONNECT, str(listener.getsockname()[1])]
    with subprocess.Popen(command, user=NOBODY, env={"PATH": "/usr/local/bin:/usr/bin:/bin"}) as other:
        try:
            with listener.accept()[0] as accepted:
                assert not is_of_this_user(scope_of(accepted))
                monkeypatch.setattr(os, "getuid", lambda: NOBODY)
                assert is_of_this_user(scope_of(accepted))
        finally:
            other.kill()
