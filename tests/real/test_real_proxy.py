"""Behind a proxy that others wrote: login, renewal and calls go through it (CONNECT), and nothing past it."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import re
import ssl
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from install_servers import IDENTITY_PROVIDERS, identity_folder, is_stamped
from real_servers import FOLDER
from support.account_server import AccountServer
from support.harness import config
from support.serving import served
from support.wire import PATIENCE

from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.oauth.account import keep, kept_accounts
from fastmcp_aggregator.oauth.vault.vault import FileVault

FOLDER = identity_folder(FOLDER)
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not is_stamped(FOLDER, IDENTITY_PROVIDERS), reason="the proxy is not installed"),
]
_MODULE = FOLDER / "node" / "node_modules" / "proxy" / "dist" / "proxy.js"
_PROXY = """
const http = await import("node:http");
const { createProxy } = await import(process.argv[1]);
const server = createProxy(http.createServer());
server.prependListener("connect", (request) => console.log("CONNECT " + request.url));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""


class Proxy:
    """A proxy in a process; `asked` is how often for which host and port."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}"
        self.asked: Counter[str] = Counter()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.asked[line.decode().removeprefix("CONNECT ").strip()] += 1

    async def stop(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._reading


@asynccontextmanager
async def proxy() -> AsyncIterator[Proxy]:
    line = ("node", "--input-type=module", "-e", _PROXY, _MODULE.as_uri())
    process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    found = Proxy(process, int(await asyncio.wait_for(process.stdout.readline(), PATIENCE)))
    try:
        yield found
    finally:
        await found.stop()


def certificate(folder: Path) -> Path:
    """A file with a key and a certificate of `localhost` that it has signed itself."""
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    file = folder / "localhost.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + made.public_bytes(Encoding.PEM))
    return file


@asynccontextmanager
async def account_server_with_tls(file: Path) -> AsyncIterator[AccountServer]:
    listener = listening_socket("127.0.0.1", 0)
    plain = int(url_of(listener, "127.0.0.1").rpartition(":")[2])

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, to_inner = await asyncio.open_connection("127.0.0.1", plain)
        await asyncio.gather(copy(reader, to_inner), copy(inner, writer))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    outside = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    server = AccountServer(f"https://localhost:{outside.sockets[0].getsockname()[1]}")
    server.person = "carol"
    async with served(server.app, listener=listener):
        try:
            yield server
        finally:
            outside.close()


async def test_login_renewal_and_calls_go_through_the_proxy(tmp_path: Path) -> None:
    file = certificate(tmp_path)
    async with account_server_with_tls(file) as server, proxy() as between:
        (tmp_path / "config.json").write_text(json.dumps(config(crm={"url": server.url})))
        (tmp_path / "settings.json").write_text(json.dumps({"servers": {"crm": {"oauth": True}}}))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "HTTPS_PROXY": between.url,
            "SSL_CERT_FILE": str(file),
            "FASTMCP_AGGREGATOR_OAUTH_DIR": str(tmp_path / "tokens"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        }

        async def started(*arguments: str) -> asyncio.subprocess.Process:
            line = [sys.executable, "-m", "fastmcp_aggregator", arguments[0], str(tmp_path / "config.json")]
            return await asyncio.create_subprocess_exec(
                *(*line, *arguments[1:], "--settings", str(tmp_path / "settings.json")),
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )

        async def said(process: asyncio.subprocess.Process, given: bytes = b"") -> str:
            return (await asyncio.wait_for(process.communicate(given), PATIENCE))[0].decode()

        login = await started("login", "crm", "--no-browser")
        assert login.stdout is not None
        shown = ""
        async with asyncio.timeout(PATIENCE):
            while not (found := re.search(r"^  (http\S+)$", shown, re.MULTILINE)):
                line = (await login.stdout.readline()).decode()
                assert line, shown
                shown += line
        async with httpx2.AsyncClient(trust_env=False, verify=ssl.create_default_context(cafile=file)) as person:
            back = (await person.get(found[1])).headers["location"]
        shown += await said(login, f"{back}\n".encode())
        assert login.returncode == 0, shown
        where = server.origin.removeprefix("https://")
        assert set(between.asked) == {where}
        at_login = between.asked[where]

        vault = FileVault(tmp_path / "tokens")
        (account,) = await kept_accounts(vault)
        await keep(vault, account.model_copy(update={"obtained_at": 0.0, "expires_at": 1.0}))
        call = await started("call", "crm:whoami")
        assert '"carol"' in (answer := await said(call)), answer
        assert server.grants["refresh_token"] == 1
        assert between.asked[where] > at_login
        assert set(between.asked) == {where}

        await between.stop()
        await keep(vault, account.model_copy(update={"obtained_at": 0.0, "expires_at": 1.0}))
        call = await started("call", "crm:whoami")
        answer = await said(call)
        assert (call.returncode != 0, "cannot be asked" in answer) == (True, True), answer
        assert server.grants["refresh_token"] == 1
