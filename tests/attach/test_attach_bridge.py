"""A bridge in this process, before a hub that is played by the test."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.harness import PATIENCE

from fastmcp_aggregator.attach import bridge, greeting
from fastmcp_aggregator.attach.bridge import Bridge
from fastmcp_aggregator.attach.client_end import ClientEnd
from fastmcp_aggregator.attach.folder import made_hub_folder, socket_of
from fastmcp_aggregator.attach.identity import HubIdentity
from fastmcp_aggregator.early.answers import digest_of, signature_of

LIST = b'{"tools":[]}'
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What listens where the hub of the bridge does."""
    runtime = Path(tempfile.mkdtemp(prefix="hub-"))  # a socket's path must be short
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    made_hub_folder()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.settimeout(10)
        listener.bind(socket_of("h"))
        listener.listen()
        yield listener
    shutil.rmtree(runtime)


def said_first(hub: socket.socket) -> tuple[socket.socket, dict[str, Any]]:
    """The next connection, and what the bridge says of its client there."""
    peer, _ = hub.accept()
    peer.settimeout(10)
    return peer, json.loads(peer.recv(greeting.LONGEST))


def test_a_hub_is_told_the_lists_that_were_answered_while_it_started(
    hub: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are from the last run: what is listed since then, the client would never hear of."""
    signature = signature_of(HELLO["protocolVersion"], HELLO["capabilities"], {"name": "x", "version": "1"})
    known = {signature: {"initialize": b"{}", "tools/list": LIST}}
    monkeypatch.setattr(bridge, "read_answers", lambda _: known)
    (stdin, to_bridge), (from_bridge, stdout) = os.pipe(), os.pipe()
    one = Bridge(HubIdentity("h", None, "c", (), False, {}), {}, (), "", ClientEnd(stdin, stdout))
    running = Thread(target=one.run, daemon=True)
    running.start()
    with os.fdopen(to_bridge, "wb", buffering=0) as client, os.fdopen(from_bridge, "rb") as answers:
        first, about = said_first(hub)
        assert about["listed"] == {}
        for number, (method, params) in enumerate([("initialize", HELLO), ("tools/list", {})]):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            client.write(json.dumps(request).encode() + b"\n")
            assert json.loads(answers.readline())["id"] == number
        first.sendall(greeting.line(greeting.READY, config="c"))
        assert first.recv(1) == b""
        second, about = said_first(hub)
        assert about["listed"] == {"tools/list": digest_of(LIST)}
        second.sendall(greeting.line(greeting.READY, config="c"))
        assert json.loads(second.recv(greeting.LONGEST))["method"] == "initialize"
        client.close()
        second.close()
        running.join(PATIENCE)
    for end in (first, second):
        end.close()
    for descriptor in (stdin, stdout):
        os.close(descriptor)
