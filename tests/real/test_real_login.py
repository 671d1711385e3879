"""Clients that log in by themselves, at an identity provider that others wrote: oidc-provider."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from fastmcp import Client
from identity_provider import AtOnce
from install_servers import clients_folder, identity_folder
from real_programs import INSPECTOR, NODE
from real_servers import FOLDER, requires_servers
from support.harness import config, free_port, lean
from support.serving import served
from support.tokens import AUDIENCE
from support.wire import PATIENCE

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.auth.verifiers import auth_from_settings
from fastmcp_aggregator.settings.model import load_settings

pytestmark = [pytest.mark.real, requires_servers]

_MODULE = identity_folder(FOLDER) / "node" / "node_modules" / "oidc-provider" / "lib" / "index.js"
GROUPS = {"web": {"servers": ["fetch"], "tools": ["pid"]}}


class Person(AtOnce):
    """Fills in the provider's forms as a person does in a browser."""

    async def redirect_handler(self, authorization_url: str) -> None:
        """Go where a browser would be sent, but for the last step."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.get(authorization_url)
            while True:
                if answer.is_redirect and answer.headers["location"].startswith(str(self._redirect_uri)):
                    break
                if answer.is_redirect:
                    answer = await http.get(answer.url.join(answer.headers["location"]))
                    continue
                form = re.search(
                    r'action="([^"]+)"[^>]*>\s*<input type="hidden" name="prompt" value="(\w+)"', answer.text
                )
                assert form is not None, answer.text
                filled = {"prompt": form[2], "login": "carol", "password": "any"}
                answer = await http.post(answer.url.join(form[1]), data=filled)
            self._sent_back = answer.headers["location"]

    @property
    def _redirect_uri(self) -> object:
        (uri,) = self.context.client_metadata.redirect_uris or ()
        return uri


@asynccontextmanager
async def oidc_provider(path: str) -> AsyncIterator[str]:
    """Its issuer."""
    process = await asyncio.create_subprocess_exec(
        *("node", Path(__file__).parent / "oidc_provider.mjs", _MODULE, path),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        yield (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def hub(issuer: str) -> AsyncIterator[str]:
    """The origin of a hub that trusts the provider."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        told = (await http.get(f"{issuer}/.well-known/openid-configuration")).json()
    listener = listening_socket("127.0.0.1", 0)
    origin = url_of(listener, "127.0.0.1")
    settings = load_settings(jwt_issuer=issuer, jwt_audience=AUDIENCE, jwt_jwks_url=told["jwks_uri"], public_url=origin)
    app = build_aggregator(
        config(fetch=lean(), files=lean()), groups=GROUPS, settings=settings, auth=auth_from_settings(settings)
    )
    async with served(app, listener=listener):
        yield origin


@pytest.mark.parametrize("path", ["", "/a/realm"])
@pytest.mark.parametrize("place", ["/mcp", "/groups/web/mcp"])
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_person_logs_in_and_calls(path: str, place: str, mode: str) -> None:
    async with (
        oidc_provider(path) as issuer,
        hub(issuer) as origin,
        Client(origin + place, auth=Person(origin + place), mode=mode) as client,
    ):
        names = {tool.name for tool in await client.list_tools()}
        assert ("files:pid" in names, "fetch:pid" in names) == (place == "/mcp", True)
        assert await client.call_tool("fetch:pid")


@pytest.mark.parametrize("path", ["", "/a/realm"])
@pytest.mark.parametrize("place", ["/mcp", "/groups/web/mcp"])
@pytest.mark.parametrize("sdk", [1, 2])
async def test_the_typescript_sdk_logs_in_and_calls(path: str, place: str, sdk: int) -> None:
    program = Path(__file__).parent / "clients" / "typescript_login.mjs"
    async with oidc_provider(path) as issuer, hub(issuer) as origin:
        modules = clients_folder(FOLDER) / "node" / "node_modules"
        wanted = {"sdk": sdk, "modules": str(modules), "url": origin + place, "tool": "fetch:pid"}
        process = await asyncio.create_subprocess_exec(
            *("node", program, json.dumps(wanted)), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, err.decode()
    found = json.loads(out)
    assert ("files:pid" in found["names"], found["isError"]) == (place == "/mcp", False)


@pytest.mark.parametrize("path", ["", "/a/realm"])
@pytest.mark.parametrize("place", ["/mcp", "/groups/web/mcp"])
async def test_the_inspector_logs_in_and_calls(path: str, place: str, tmp_path: Path) -> None:
    """Its command line opens a browser, in which a person fills in the provider's forms; then it calls. Without scopes
    of its own it registers with an empty one, which this provider refuses.
    """
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent / "oidc_person.py"} "$1"\n')
    browser.chmod(0o755)
    environment = {**os.environ, "HOME": str(tmp_path), "BROWSER": str(browser), "MCP_AUTO_OPEN_ENABLED": "true"}
    async with oidc_provider(path) as issuer, hub(issuer) as origin:
        entry = {"type": "streamable-http", "url": origin + place, "oauth": {"scopes": "openid"}}
        (tmp_path / "config.json").write_text(json.dumps({"mcpServers": {"hub": entry}}))
        where = ["--config", str(tmp_path / "config.json"), "--server", "hub"]
        wanted = ["--method", "tools/call", "--tool-name", "fetch:pid", "--format", "json"]
        callback = f"http://127.0.0.1:{free_port()}/oauth/callback"
        process = await asyncio.create_subprocess_exec(
            *(NODE, INSPECTOR, "--cli", *where, *wanted, "--callback-url", callback),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=tmp_path,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
    assert process.returncode == 0, err.decode()
    assert "pid" in json.loads(out)["result"]["content"][0]["text"]
