"""Accounts: renewed by one at a time, kept sealed, and not tried again when a person has to log in."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import keyring
import pytest

from fastmcp_aggregator.children.session.transport_failure import HttpFailed, HttpFailure
from fastmcp_aggregator.oauth import account as account_module
from fastmcp_aggregator.oauth import grants, revocation, tokens
from fastmcp_aggregator.oauth.account import Account, LoginAccount, keep, kept_accounts, kept_tokens, wanted_scopes
from fastmcp_aggregator.oauth.errors import Unreachable
from fastmcp_aggregator.oauth.tokens import HUB, Tokens
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.sealing_key import SealingKeys
from fastmcp_aggregator.oauth.vault.vault import FileVault, Vault, document_id_of
from fastmcp_aggregator.oauth.web import HttpAnswer
from fastmcp_aggregator.settings.oauth import OAuthSettings

URL = "https://mcp.example.com/mcp"


class TokenEndpoint:
    """Renews each refresh token once: it rotates them, and takes none twice."""

    def __init__(self) -> None:
        self.number = 0
        self.asked: list[Mapping[str, str]] = []
        self.answer: HttpAnswer | Unreachable | None = None
        self.go = asyncio.Event()
        self.go.set()

    async def posted(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> HttpAnswer:
        self.asked.append(form)
        await self.go.wait()
        if isinstance(self.answer, Unreachable):
            raise self.answer
        if self.answer is not None:
            return self.answer
        if form["refresh_token"] != f"refresh-{self.number}":
            return refusal("invalid_grant")
        self.number += 1
        return answer(self.number)


def answer(number: int, **more: Any) -> HttpAnswer:
    told = {"access_token": f"access-{number}", "token_type": "Bearer", "refresh_token": f"refresh-{number}"}
    return HttpAnswer(200, httpx2.Headers(), json.dumps({**told, "expires_in": 3600, **more}).encode())


def refusal(code: str, status: int = 400) -> HttpAnswer:
    return HttpAnswer(status, httpx2.Headers(), json.dumps({"error": code, "error_description": "s3cret"}).encode())


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> TokenEndpoint:
    found = TokenEndpoint()
    monkeypatch.setattr(grants, "posted", found.posted)
    return found


@pytest.fixture
def vault(tmp_path: Path) -> FileVault:
    return FileVault(tmp_path / "tokens")


async def logged_in(vault: FileVault, **more: Any) -> None:
    """With tokens that have ended."""
    given = {
        "url": URL,
        "issuer": "https://login.example.com",
        "resource": URL,
        "token_endpoint": "https://login.example.com/token",
        "client": {"client_id": "c", "redirect_uris": ["http://localhost/"]},
        "tokens": {"access_token": "access-0", "refresh_token": "refresh-0"},
        "obtained_at": 0,
        "expires_at": 1,
    }
    await keep(vault, Tokens.model_validate({**given, **more}))


def account(vault: FileVault, **timing: float) -> Account:
    return LoginAccount(vault, URL, OAuthSettings(), **timing)


async def failure_of(account: Account) -> HttpFailure:
    with pytest.raises(HttpFailed) as caught:
        await account.authorization()
    return caught.value.failure


async def test_tasks_and_processes_that_need_a_token_at_once_renew_once(
    endpoint: TokenEndpoint, vault: FileVault, tmp_path: Path
) -> None:
    await logged_in(vault)
    accounts = [account(FileVault(tmp_path / "tokens")) for _ in range(4)]  # each as another process has it
    found = await asyncio.gather(*(each.authorization() for each in accounts for _ in range(10)))
    assert set(found) == {"Bearer access-1"}
    assert len(endpoint.asked) == 1


async def test_of_many_that_a_server_refuses_one_renews(endpoint: TokenEndpoint, vault: FileVault) -> None:
    await logged_in(vault, expires_at=None)
    accounts = [account(vault) for _ in range(3)]
    for each in accounts:
        assert await each.authorization() == "Bearer access-0"
    found = await asyncio.gather(*(each.renewed("Bearer access-0") for each in accounts for _ in range(5)))
    assert set(found) == {"Bearer access-1"}
    assert len(endpoint.asked) == 1


async def test_an_answer_is_kept_though_nobody_waits_for_it_any_more(endpoint: TokenEndpoint, vault: FileVault) -> None:
    await logged_in(vault)
    endpoint.go.clear()
    one = account(vault)
    asking = asyncio.create_task(one.authorization())
    while not endpoint.asked:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    endpoint.go.set()
    await one.settled()
    (kept,) = await kept_accounts(vault)
    assert kept.tokens.refresh_token == "refresh-1"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("invalid_grant", "its login has expired or was revoked"),
        ("invalid_client", "does not know this client any more"),
        ("what?", "refuses (HTTP status 400)"),
    ],
)
async def test_a_refused_login_is_needed_anew_and_not_tried_again_by_anybody(
    endpoint: TokenEndpoint, vault: FileVault, code: str, words: str
) -> None:
    await logged_in(vault)
    endpoint.answer = refusal(code)
    one = account(vault)
    failure = await failure_of(one)
    assert (failure.kind, words in failure.reason, "s3cret" in failure.reason) == ("login", True, False)
    assert one.why_login_needed is not None
    for _ in range(3):
        assert (await failure_of(one)).kind == "login"
        assert (await failure_of(account(vault))).kind == "login"
    assert len(endpoint.asked) == 1
    endpoint.answer = None
    await logged_in(vault, tokens={"access_token": "new"}, expires_at=None)
    assert await one.authorization() == "Bearer new"
    assert one.why_login_needed is None


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def dies_before_it_keeps(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """While it is not empty, no answer of an authorization server is kept."""
    dies = [True]
    really_keep = account_module.keep

    async def kept(vault: Vault, found: Tokens) -> None:
        if dies and found.tokens.access_token != "access-0":
            raise Killed
        await really_keep(vault, found)

    monkeypatch.setattr(account_module, "keep", kept)
    return dies


async def test_a_login_that_was_lost_with_a_process_is_said_so_and_tried_once_more(
    endpoint: TokenEndpoint, vault: FileVault, dies_before_it_keeps: list[bool]
) -> None:
    """A refresh token that is good once was presented, and what came for it was not kept."""
    await logged_in(vault)
    with pytest.raises(Killed):
        await account(vault).authorization()
    dies_before_it_keeps.clear()
    for _ in range(3):
        failure = await failure_of(account(vault))
        assert (failure.kind, "ended while it renewed its login" in failure.reason) == ("login", True)
    assert len(endpoint.asked) == 2


NEW_PROVIDER = OAuthSettings(client_id="c", client_secret_env="NEW_SECRET", issuer="https://new.example.com")


@pytest.mark.parametrize("expires_at", [1, None], ids=["ended", "good"])
async def test_a_login_at_another_issuer_than_that_of_the_settings_is_not_used(
    endpoint: TokenEndpoint, vault: FileVault, monkeypatch: pytest.MonkeyPatch, expires_at: float | None
) -> None:
    monkeypatch.setenv("NEW_SECRET", "s3cret")
    method = {
        "client_id": "c",
        "redirect_uris": ["http://localhost/"],
        "token_endpoint_auth_method": "client_secret_post",
    }
    await logged_in(vault, expires_at=expires_at, client=method)
    failure = await failure_of(LoginAccount(vault, URL, NEW_PROVIDER))
    assert (failure.kind, endpoint.asked) == ("login", [])
    assert "another authorization server" in failure.reason


async def test_the_secret_of_another_issuer_goes_nowhere_to_end_a_login(
    vault: FileVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    async def posted(url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> HttpAnswer:
        sent.append((url, form, headers))
        return HttpAnswer(200, httpx2.Headers(), b"")

    monkeypatch.setattr(revocation, "posted", posted)
    monkeypatch.setenv("NEW_SECRET", "s3cret")
    for method in ("client_secret_post", "client_secret_basic", "none"):
        client = {"client_id": "c", "redirect_uris": ["http://localhost/"], "token_endpoint_auth_method": method}
        await logged_in(vault, client=client, revocation_endpoint="https://login.example.com/revoke")
        (kept,) = await kept_accounts(vault)
        await revocation.revoke(vault, kept, NEW_PROVIDER)
        assert await kept_accounts(vault) == []
    assert "s3cret" not in repr(sent)


async def test_a_process_that_is_killed_over_each_renewal_does_not_try_for_ever(
    endpoint: TokenEndpoint, vault: FileVault, dies_before_it_keeps: list[bool]
) -> None:
    await logged_in(vault)
    endpoint.answer = answer(1)  # it takes the same refresh token again and again
    for _ in range(2):
        with pytest.raises(Killed):
            await account(vault).authorization()
    assert (await failure_of(account(vault))).kind == "login"
    assert len(endpoint.asked) == 2


async def test_a_process_that_is_killed_costs_no_login_where_refresh_tokens_stay_good(
    endpoint: TokenEndpoint, vault: FileVault, dies_before_it_keeps: list[bool]
) -> None:
    await logged_in(vault)
    endpoint.answer = answer(1)
    with pytest.raises(Killed):
        await account(vault).authorization()
    dies_before_it_keeps.clear()
    assert await account(vault).authorization() == "Bearer access-1"
    (kept,) = await kept_accounts(vault)
    assert kept.renewals_begun == 0


async def test_no_refresh_token_is_presented_while_nothing_can_be_kept(
    endpoint: TokenEndpoint, vault: FileVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logged_in(vault)

    async def full(*_: object, **__: object) -> None:
        raise VaultError("no space left")

    monkeypatch.setattr(vault, "keep", full)
    assert "no space left" in (await failure_of(account(vault))).reason
    assert endpoint.asked == []


@pytest.mark.parametrize("answered", [refusal("", 503), refusal("slow_down"), Unreachable("x cannot be asked: y")])
async def test_an_authorization_server_that_is_down_costs_no_login(
    endpoint: TokenEndpoint, vault: FileVault, answered: HttpAnswer | Unreachable
) -> None:
    await logged_in(vault)
    endpoint.answer = answered
    one = account(vault)
    assert (await failure_of(one)).kind == "status"
    assert one.why_login_needed is None
    endpoint.answer = None
    assert await one.authorization() == "Bearer access-1"


async def test_a_new_login_and_a_revocation_are_noticed(endpoint: TokenEndpoint, vault: FileVault) -> None:
    await logged_in(vault, expires_at=None)
    one = account(vault, look_interval=-1)
    assert await one.authorization() == "Bearer access-0"
    await logged_in(vault, tokens={"access_token": "another"}, expires_at=None)
    assert await one.authorization() == "Bearer another"
    (kept,) = await kept_accounts(vault)
    await vault.remove("tokens", kept.name)
    assert "nobody has logged in" in (await failure_of(one)).reason


@pytest.mark.parametrize("hours", [8, pytest.param(7 * 24, marks=[pytest.mark.process, pytest.mark.no_cover])])
async def test_hours_of_four_replicas_cost_no_login(
    endpoint: TokenEndpoint, vault: FileVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """All of them need the next token at once, every hour of a clock that jumps; a refresh token is good once."""
    now = 1_000_000.0
    for module in ("account", "tokens"):
        monkeypatch.setattr(f"fastmcp_aggregator.oauth.{module}.time.time", lambda: now)
    await logged_in(vault, obtained_at=now, expires_at=now)
    replicas = [account(FileVault(tmp_path / "tokens", poll_interval=0.002)) for _ in range(4)]
    for _ in range(hours):
        now += 3600
        found = await asyncio.gather(*(replica.authorization() for replica in replicas))
        assert len(set(found)) == 1
    assert (endpoint.number, len(endpoint.asked)) == (hours, hours)


async def test_an_account_that_is_forgotten_just_as_it_is_renewed_has_tokens_all_the_same(
    endpoint: TokenEndpoint, vault: FileVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a callback has it that comes over another call of the same principal."""
    await logged_in(vault)
    one = account(vault)
    renew = one._renew

    async def forgotten(refused: str | None) -> None:
        await renew(refused)
        monkeypatch.setattr(one, "_renew", renew)
        asyncio.get_running_loop().call_soon(one.forget)

    monkeypatch.setattr(one, "_renew", forgotten)
    assert await one.authorization() == "Bearer access-1"


async def test_scopes_that_a_call_wants_are_kept_for_the_next_login(endpoint: TokenEndpoint, vault: FileVault) -> None:
    given = {"access_token": "access-0", "refresh_token": "refresh-0", "scope": "read"}
    await logged_in(vault, tokens=given, expires_at=None)
    one = account(vault)
    await one.authorization()
    with pytest.raises(HttpFailed) as caught:
        await one.widened("Bearer access-0", "write read")
    failure = caught.value.failure
    assert (failure.kind, "it wants write read" in failure.reason) == ("login", True)
    with pytest.raises(HttpFailed):
        await one.widened("Bearer access-0", "x" * 5000)
    (kept,) = await kept_accounts(vault)
    assert kept.wanted_scopes == "read write"
    await logged_in(vault, tokens={"access_token": "wide"}, expires_at=None)  # in another process
    assert await one.widened("Bearer access-0", "write") == "Bearer wide"
    assert not endpoint.asked


# What is kept.


async def test_documents_are_sealed_for_their_place(vault: FileVault, tmp_path: Path) -> None:
    await vault.keep("tokens", "alice", b"of alice")
    await vault.keep("tokens", "bob", b"of bob")
    files = {name: tmp_path / "tokens" / document_id_of("tokens", name) for name in ("alice", "bob")}
    assert b"of alice".hex() not in files["alice"].read_text()
    files["bob"].write_text(files["alice"].read_text())
    with pytest.raises(VaultError):
        await vault.read("tokens", "bob")
    assert await vault.all("tokens") == [b"of alice"]
    files["alice"].write_text(files["alice"].read_text().replace("\n0\n", "\n9e9\n"))
    with pytest.raises(VaultError):
        await vault.read("tokens", "alice")


async def test_a_document_counts_for_its_time_and_is_taken_once(tmp_path: Path) -> None:
    now = 100.0
    vault = FileVault(tmp_path, clock=lambda: now)
    await vault.keep("login", "a", b"begun", lifetime=10)
    taken = await asyncio.gather(*(vault.take("login", "a") for _ in range(5)))
    assert sorted(taken, key=bool) == [None] * 4 + [b"begun"]
    await vault.keep("login", "b", b"begun", lifetime=10)
    now += 11
    assert await vault.read("login", "b") is None
    assert await vault.all("login") == []
    assert not [file for file in tmp_path.iterdir() if file.name.startswith("login")]


async def test_logins_that_nobody_finishes_leave_nothing_behind(tmp_path: Path) -> None:
    now = 100.0
    vault = FileVault(tmp_path, clock=lambda: now)
    await vault.keep("tokens", "account", b"of somebody")
    for number in range(5):
        await vault.keep("login", f"finished {number}", b"begun", lifetime=600)
        await vault.take("login", f"finished {number}")
        await vault.keep("login", f"left {number}", b"begun", lifetime=600)
    now += 601
    await vault.keep("login", "next", b"begun", lifetime=600)
    assert len([file for file in tmp_path.iterdir() if "login" in file.name]) == 1
    assert await vault.read("login", "next") is not None
    assert await vault.read("tokens", "account") is not None


class MemoryKeyring:
    """No subclass of the library's: it would be found there, and used for all."""

    priority = 5

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if len(password.encode("utf-16-le")) > 2560 or len(username) > 513:
            raise OSError("CredWrite: as Windows' Credential Manager has it")
        self.kept[service, username] = password


async def test_the_key_is_in_the_systems_keyring_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = FileVault(tmp_path)
    await plain.keep("tokens", "before", b"sealed with the file")
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    vault = FileVault(tmp_path)
    await vault.keep("tokens", "a", b"document")
    assert len(ring.kept) == 1
    assert await FileVault(tmp_path).read("tokens", "a") == b"document"
    assert await vault.read("tokens", "before") == b"sealed with the file"
    ring.kept.clear()
    with pytest.raises(VaultError, match="system's keyring, which is not available here"):
        await FileVault(tmp_path).read("tokens", "a")


async def test_tokens_of_any_size_are_kept_where_a_keyring_takes_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    large = b"t" * 20_000
    await FileVault(tmp_path).keep("tokens", "a", large)
    assert await FileVault(tmp_path).read("tokens", "a") == large
    assert len(ring.kept) == 1
    nested = tmp_path / ("n" * 200) / ("m" * 200) / ("o" * 200)
    await FileVault(nested).keep("tokens", "a", large)
    assert await FileVault(nested).read("tokens", "a") == large


def test_a_key_that_two_processes_make_at_once_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SlowKeyring(MemoryKeyring):
        def get_password(self, service: str, username: str) -> str | None:
            found = super().get_password(service, username)
            with suppress(threading.BrokenBarrierError):  # who has looked alone goes on alone
                both.wait(0.2)
            return found

    both, ring = threading.Barrier(2), SlowKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    with ThreadPoolExecutor() as threads:
        first, second = threads.map(lambda _: SealingKeys(tmp_path).new(), range(2))
    assert first == second == ("keyring", SealingKeys(tmp_path).of("keyring"))


def test_a_directory_has_one_key_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    monkeypatch.chdir(tmp_path)
    assert SealingKeys(Path("tokens")).new() == SealingKeys(tmp_path / "tokens").new()


def test_a_keyring_that_hangs_is_done_without_and_not_asked_again_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[threading.Event] = []
    ring = MemoryKeyring()

    def hang() -> MemoryKeyring:
        asked.append(event := threading.Event())
        event.wait()
        return ring

    monkeypatch.setattr(keyring, "get_keyring", hang)
    keys = SealingKeys(tmp_path, timeout=0.01)
    for _ in range(3):
        assert keys.new()[0] == "file"
    assert len(asked) == 1
    monkeypatch.setattr(keyring, "get_keyring", lambda: ring)
    asked[0].set()
    while keys.new()[0] == "file":
        pass


def test_short_tokens_are_used_for_most_of_their_life() -> None:
    made = Tokens.model_validate(
        {
            "url": URL,
            "issuer": "i",
            "token_endpoint": "t",
            "client": {"client_id": "c"},
            "tokens": {"access_token": "a"},
            "obtained_at": 100,
            "expires_at": 110,
        }
    )
    assert [made.are_good(now) for now in (100, 108.9, 109, 111)] == [True, True, False, False]
    assert tokens.expiry(made.tokens, 5) is None


@pytest.mark.parametrize("kind", ["tokens", "server"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"file\n0\n00ff"])
async def test_what_cannot_be_read_is_told_and_replaced_by_the_next_login(
    vault: FileVault, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, content: bytes
) -> None:
    await logged_in(vault, wanted_scopes="write")
    tokens = await kept_tokens(vault, URL, HUB)
    assert tokens is not None
    (file,) = (tmp_path / "tokens").glob(f"{kind}-*")
    file.write_bytes(content)
    with pytest.raises(VaultError, match=r"cannot be read.*; log in again"):
        await kept_tokens(vault, URL, HUB)
    assert await wanted_scopes(vault, URL, HUB) is None
    assert len(await kept_accounts(vault)) == (kind == "server")
    assert ("cannot be read" in caplog.text) == (kind == "tokens")
    await keep(vault, tokens)
    assert await kept_tokens(vault, URL, HUB) == tokens


@pytest.mark.parametrize(
    "odd", [{"access_token": "a\r\nX: 1"}, {"expires_in": 10**400}, {"refresh_token": "r" * 900_000}]
)
async def test_a_renewal_with_a_token_that_cannot_be_used_fails_and_is_tried_again(
    endpoint: TokenEndpoint, vault: FileVault, odd: dict[str, Any]
) -> None:
    await logged_in(vault)
    endpoint.answer = answer(1, **odd)
    failure = await failure_of(account(vault))
    assert (failure.kind, "its authorization server gave" in failure.reason) == ("auth", True)
    endpoint.answer = None
    assert await account(vault).authorization() == "Bearer access-1"


async def test_what_could_not_be_read_again_is_not_kept(vault: FileVault) -> None:
    await vault.keep("tokens", "small", b"x" * 100_000)
    assert await vault.read("tokens", "small") == b"x" * 100_000
    with pytest.raises(VaultError, match="too large"):
        await vault.keep("tokens", "large", b"x" * 200_000)
    assert await vault.read("tokens", "large") is None
