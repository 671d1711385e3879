"""The page for teams, done as it says: its files, its commands, nginx with TLS before the hub, and its check."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from support.harness import free_port, running
from support.wire import until

PAGE = (Path(__file__).parents[2] / "docs" / "team.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="([\w.]+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
COMMANDS: list[str] = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NEEDED = ("nginx", "openssl", "curl", "bash", "mcp-server-time", "mcp-server-git")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(any(shutil.which(each, path=PATH) is None for each in NEEDED), reason=f"needs {NEEDED}"),
]


def commands(word: str) -> list[str]:
    """The lines of the first block of commands that has a word."""
    return next(block for block in COMMANDS if word in block).splitlines()


async def run(folder: Path, *lines: str, **variables: str) -> str:
    """What commands print; they must not fail."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euc", "\n".join(lines)),
        cwd=folder,
        env={**os.environ, "PATH": PATH, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return printed.decode()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """The hub of the page behind the proxy of the page; the proxy's origin."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    names = "-subj /CN=hub -addext subjectAltName=DNS:hub.example.org,DNS:localhost"
    await run(folder, f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 {names} -keyout hub.key -out hub.pem")
    check, serve = (line.split() for line in commands("check mcp.json"))
    assert "No problems found." in await run(folder, " ".join(check))
    env = {**os.environ, "PATH": PATH}
    async with AsyncExitStack() as stack:
        hub = running(*serve, "--port", "0", handshake=False, cwd=folder, env=env)
        server = await stack.enter_async_context(hub)
        [port] = (await until(lambda: re.search(rb"serving on http://127.0.0.1:(\d+)/mcp", server.stderr))).groups()
        await until(lambda: b"2 of 2 servers running" in server.stderr)
        outside = free_port()
        proxy = FILES["hub.conf"].replace("127.0.0.1:8000", f"127.0.0.1:{port.decode()}").replace("/etc/ssl/", "")
        (folder / "hub.conf").write_text(proxy.replace("listen 443", f"listen 127.0.0.1:{outside}"))
        temporary = " ".join(f"{kind}_temp_path tmp;" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        head = "pid pid; daemon off; master_process off; events {}"
        (folder / "nginx.conf").write_text(f"{head} http {{ access_log off; {temporary} include hub.conf; }}")
        nginx = ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", "stderr"]
        await stack.enter_async_context(running(*nginx, handshake=False, env=env))
        await until((folder / "pid").exists)  # written once it listens
        yield f"localhost:{outside}"


async def test_the_page_for_teams_leads_to_a_hub_that_passes_its_check(tmp_path: Path) -> None:
    made = [line for line in commands("keys create ops") if "keys create" in line]
    ops, alice, _ = [(await run(tmp_path, line)).strip() for line in made]
    async with served(tmp_path) as place:

        async def asked(line: str, key: str) -> tuple[int, str]:
            curl = f"curl --silent --cacert hub.pem --connect-to hub.example.org:443:{place} -w '\\n%{{http_code}}'"
            printed = await run(tmp_path, line.replace("curl", curl).replace("fma_…", key))
            body, _, status = printed.rpartition("\n")
            return int(status), body

        with_key, without = commands("/groups/developers/mcp/tools/list")
        status, listed = await asked(with_key, alice)
        assert status == 200
        names = {tool["name"] for tool in json.loads(listed)["tools"]}
        assert names == {"time:get_current_time", "time:convert_time", "git:git_log", "git:git_diff"}
        assert (await asked(without, alice))[0] == 401
        _, told = commands("fastmcp-aggregator status https")
        told = told.replace("hub.example.org", place)
        shown = await run(tmp_path, told, FASTMCP_AGGREGATOR_API_KEY=ops, SSL_CERT_FILE=str(tmp_path / "hub.pem"))
        assert re.findall(r"^(\w+) +running", shown, re.MULTILINE) == ["time", "git"]
        audited = tmp_path / "audit.jsonl"
        await until(lambda: "authentication_failed" in audited.read_text())
