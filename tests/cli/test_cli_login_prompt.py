"""What `login` asks for on a terminal, at an authorization server that lets no client register itself."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pty
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx2
import pytest
from support.account_server import AccountServer, account_server
from support.harness import config
from support.wire import PATIENCE

from fastmcp_aggregator.oauth.account import kept_accounts
from fastmcp_aggregator.oauth.vault.vault import FileVault

pytestmark = pytest.mark.process
BROWSER = """
import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1]).read()
"""
SECRET = "s3cret-of-the-client"
ID, VARIABLE = "The client's id (empty: give up): ", "The environment variable with its secret (empty: it has none): "


async def on_terminal(
    server: AccountServer, folder: Path, answers: Mapping[str, str | Callable[[str], str]], *arguments: str
) -> tuple[int, str]:
    """Run `login` on a terminal, and answer each question, perhaps by what was shown so far; its exit code, and all
    that was shown.
    """
    answers = dict(answers)
    (folder / "config.json").write_text(json.dumps(config(crm={"url": server.url})))
    (folder / "browser.py").write_text(BROWSER)
    terminal, its_end = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fastmcp_aggregator", "login", str(folder / "config.json"), "crm", *arguments),
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "BROWSER": f"{sys.executable} {folder / 'browser.py'} %s &",
            "FASTMCP_AGGREGATOR_OAUTH_DIR": str(folder / "tokens"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            "CLIENT_SECRET": SECRET,
        },
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
    )
    os.close(its_end)
    shown = ""
    try:
        async with asyncio.timeout(PATIENCE):
            while part := await asyncio.to_thread(read, terminal):
                shown += part
                for question in [question for question in answers if shown.replace("\r\n", "\n").endswith(question)]:
                    answer = answers.pop(question)
                    text = answer if isinstance(answer, str) else await asyncio.to_thread(answer, shown)
                    os.write(terminal, f"{text}\n".encode())
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        os.close(terminal)
    assert process.returncode is not None
    return process.returncode, shown.replace("\r\n", "\n")


def read(terminal: int) -> str:
    """What is shown next; empty at the end."""
    try:
        return os.read(terminal, 65536).decode()
    except OSError:  # on Linux, once the other end is closed
        return ""


@pytest.mark.parametrize("variable", ["", "CLIENT_SECRET"])
async def test_a_client_id_and_the_variable_of_its_secret_are_asked_for(tmp_path: Path, variable: str) -> None:
    async with account_server() as server:
        server.registers, server.person = False, "carol"
        code, shown = await on_terminal(server, tmp_path, {ID: "hub", VARIABLE: variable})
        assert code == 0, shown
        assert "lets no client register itself; register one there, and set `client_id`." in shown
        written = re.search(r"can be renewed:\n((?:  .+\n)+)", shown)
        assert written is not None
        secret = f'  client_secret_env = "CLIENT_SECRET"\n  issuer = "{server.issuer}"\n' if variable else ""
        assert written[1] == f'  client_id = "hub"\n{secret}'
        assert SECRET not in shown
        proof = f"Basic {base64.b64encode(f'hub:{SECRET}'.encode()).decode()}" if variable else None
        assert (server.proofs, server.grants["registration"]) == ([proof], 0)
        (account,) = await kept_accounts(FileVault(tmp_path / "tokens"))
        assert (account.client.client_id, account.client.client_secret) == ("hub", None)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({ID: ""}, "register one there, and set `client_id`"),
        ({ID: "hub", VARIABLE: "NOT_SET"}, "the environment variable NOT_SET is not set"),
    ],
)
async def test_without_an_answer_that_does_nobody_is_logged_in(
    tmp_path: Path, answers: dict[str, str], words: str
) -> None:
    async with account_server() as server:
        server.registers = False
        code, shown = await on_terminal(server, tmp_path, dict(answers))
        assert (code != 0, words in shown) == (True, True), shown
        assert (f"`fastmcp-aggregator check {tmp_path / 'config.json'}` says what to write." in shown) == (
            answers[ID] == ""
        )
        assert await kept_accounts(FileVault(tmp_path / "tokens")) == []


async def test_check_does_not_say_that_all_is_well_before_it_has_asked(tmp_path: Path) -> None:
    async with account_server() as server:
        server.registers = False
        (tmp_path / "config.json").write_text(json.dumps(config(crm={"url": server.url})))
        (tmp_path / "settings.json").write_text('{"servers": {"crm": {"oauth": true}}}')
        files = ("config.json", "--settings", "settings.json")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fastmcp_aggregator", "check", *files),
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        said = (await asyncio.wait_for(process.communicate(), PATIENCE))[0].decode()
        assert "No problems found in the files. What logins need comes last." in said
        assert "lets no client register itself" in said.partition("Logins (OAuth):")[2]


WAITING, AGAIN = "Waiting for the login, for 5 minutes.\n", "Paste the whole address, or the rest of it:"


def back(shown: str) -> str:
    """Where the browser of a person ends who opens the address that was shown."""
    found = re.search(r"^  (http\S+)", shown, re.MULTILINE)
    assert found is not None, shown
    return httpx2.get(found[1], trust_env=False, timeout=PATIENCE).headers["location"]


async def test_what_is_pasted_wrongly_may_be_pasted_again(tmp_path: Path) -> None:
    wrong = {
        "code=([^&]+).*": (r"\1", "not the whole address"),
        "^[^?]+": ("http://localhost/callback", "another authorization server"),
        "state=[^&]+": ("state=other", "belongs to another login"),
        "iss=[^&]+": ("iss=https://evil.example", "another authorization server"),
        "code=[^&]+": ("", "no authorization code"),
    }

    def pasted(shown: str) -> str:
        right = back(shown)
        lines = ["", *(re.sub(pattern, other, right) for pattern, (other, _) in wrong.items())]
        lines[1] = lines[1].rpartition("&")[2]  # the code alone
        return "\n".join([*lines, f' "{right[:100]}', f'{right[100:]}" '])

    async with account_server() as server:
        server.person = "carol"
        code, shown = await on_terminal(server, tmp_path, {WAITING: pasted}, "--no-browser")
        assert code == 0, shown
        refusals = [line for line in shown.splitlines() if AGAIN in line]
        expected = [*(words for _, words in wrong.values()), "another login"]  # the first half of the right one
        assert [words for words, line in zip(expected, refusals, strict=True) if words not in line] == [], shown
        assert server.grants["refused"] == 0
        assert len(await kept_accounts(FileVault(tmp_path / "tokens"))) == 1


async def test_an_answer_to_another_login_does_not_end_this_one(tmp_path: Path) -> None:
    async with account_server() as server:
        server.person, statuses = "carol", []

        def browse(shown: str) -> str:
            address = back(shown)
            for each in (re.sub("state=[^&]+", "state=other", address), address):
                statuses.append(httpx2.get(each, trust_env=False, timeout=PATIENCE).status_code)
            return ""

        code, shown = await on_terminal(server, tmp_path, {WAITING: browse}, "--no-browser")
        assert (code, statuses) == (0, [400, 200]), shown


async def test_nobody_is_asked_to_log_in_where_tokens_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("not a folder")
    async with account_server() as server:
        code, shown = await on_terminal(server, tmp_path, {}, "--no-browser")
        assert (code, "oauth_dir" in shown, WAITING in shown) == (1, True, False), shown
        assert server.grants == {}
