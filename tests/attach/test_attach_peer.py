"""Another user at the other end of a socket, which anybody can reach: neither hubs nor bridges speak with them."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness import PATIENCE

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.attach import greeting, starting
from fastmcp_aggregator.attach.folder import Unusable
from fastmcp_aggregator.attach.systems import system
from fastmcp_aggregator.local_hub.hub import LocalHub
from fastmcp_aggregator.local_hub.report import HubAbout

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform == "win32" or os.getuid() != 0, reason="only root may become another user"),
]

NOBODY = 65534


@pytest.fixture
def path() -> Iterator[Path]:
    """Of a socket in a folder that anybody may use."""
    folder = Path(tempfile.mkdtemp(prefix="hub-"))
    folder.chmod(0o777)
    yield folder / "x.sock"
    shutil.rmtree(folder)


def of_another_user(code: str, path: Path) -> subprocess.Popen[bytes]:
    """A program that has `peer`, a socket, and `path`."""
    start = f"import os, socket\nos.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    start += f"peer = socket.socket(socket.AF_UNIX)\npeer.settimeout({PATIENCE})\npath = {str(path)!r}\n"
    return subprocess.Popen([sys.executable, "-I", "-S", "-c", start + code], stdout=subprocess.PIPE)


async def test_a_hub_answers_no_other_user(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    path.chmod(0o777)
    hub = LocalHub(
        build_aggregator({"mcpServers": {}}),
        system.Listener(listener),
        HubAbout("1", None, "c"),
        keep_for=_none,
        idle=60.0,
    )
    running = asyncio.create_task(hub.run())
    question = greeting.line(greeting.STATUS)
    code = f"peer.connect(path)\ntry: peer.sendall({question!r})\nexcept OSError: pass\n"
    code += "try: print(peer.recv(1000))\nexcept OSError: print(b'')"
    with of_another_user(code, path) as process:
        output, _ = await asyncio.to_thread(process.communicate)
    assert output.strip() == b"b''"
    assert f"authentication failed for user {NOBODY} at {path.name}: the hub is another user's" in caplog.text
    hub.end("the test is over")
    await asyncio.wait_for(running, PATIENCE)


def _none(*_: object) -> None:
    return None


def test_a_bridge_attaches_to_no_other_users_hub(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "socket_of", lambda _: str(path))
    code = "peer.bind(path); peer.listen(); print(flush=True)\nwhile True: peer.accept()"
    with of_another_user(code, path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(Unusable, match="another user listens on"):
            starting.connected("x")
        process.kill()
