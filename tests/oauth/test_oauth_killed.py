"""A process that is killed between an authorization server's answer and its write: the login is lost, and said so."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from support.account_hub import give
from support.account_server import account_server
from support.harness import config
from support.wire import PATIENCE

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.oauth.tokens import HUB
from fastmcp_aggregator.oauth.vault.vault import FileVault

pytestmark = pytest.mark.process
RENEWS = """
import asyncio, sys
from pathlib import Path
from fastmcp_aggregator.oauth import account
from fastmcp_aggregator.oauth.vault.vault import FileVault
from fastmcp_aggregator.settings.oauth import OAuthSettings

really_keep = account.keep

async def keep(vault, tokens):
    if tokens.tokens.access_token != OLD:
        print("answered", flush=True)
        await asyncio.sleep(3600)
    await really_keep(vault, tokens)

async def renew():
    global OLD
    found = account.LoginAccount(FileVault(Path(sys.argv[1])), sys.argv[2], OAuthSettings())
    OLD = (await found.authorization()).removeprefix("Bearer ")
    account.keep = keep
    await found.renewed(f"Bearer {OLD}")

asyncio.run(renew())
"""


async def test_what_was_lost_with_a_killed_process_is_said_at_once_and_tried_once(tmp_path: Path) -> None:
    async with account_server() as server:
        await give(FileVault(tmp_path), server, HUB, "the-hub")
        line = (sys.executable, "-c", RENEWS, str(tmp_path), server.url)
        process = await asyncio.create_subprocess_exec(*line, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
        assert (said, server.grants["refresh_token"]) == (b"answered\n", 1)
        process.kill()
        await process.wait()
        server.revoke("the-hub", also_refresh=False)
        for _ in range(3):  # each as a program that is started anew
            app = build_aggregator(
                config(crm={"url": server.url}), servers={"crm": {"oauth": {}}}, oauth_dir=str(tmp_path), strict=False
            )
            async with app, asyncio.timeout(PATIENCE):
                status = app.health()["crm"]
                assert (status.state, status.login_needed) == ("failed", True)
                assert "ended while it renewed its login" in str(status.last_error)
        assert (server.grants["refresh_token"], server.grants["refused"]) == (2, 1)
