"""The vault of replicas: sealed in Redis, changed by one at a time, and closed while Redis is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.redis_server import RedisServer, needs_redis

from fastmcp_aggregator.errors import ConfigError
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.replicas import redis_vault, vault_from_settings
from fastmcp_aggregator.replicas.redis_connection import connect
from fastmcp_aggregator.replicas.redis_vault import RedisVault
from fastmcp_aggregator.settings.model import load_settings

pytestmark = [pytest.mark.replicas, needs_redis]
SECRET = "a secret of thirty-two characters"


async def test_documents_are_for_those_who_have_the_secret_and_for_their_place(redis: RedisServer) -> None:
    vault, other = RedisVault(redis.url, SECRET), RedisVault(redis.url, SECRET[::-1])
    await vault.keep("tokens", "alice", b"of alice")
    await vault.keep("tokens", "bob", b"of bob")
    assert await RedisVault(redis.url, SECRET).read("tokens", "alice") == b"of alice"
    assert sorted(await vault.all("tokens")) == [b"of alice", b"of bob"]
    assert await other.all("tokens") == []
    with pytest.raises(VaultError):
        await other.read("tokens", "alice")
    client = connect(redis.url)
    keys = sorted([key async for key in client.scan_iter("*")])
    values = [await client.get(key) for key in keys]
    assert not [value for value in [*keys, *values] if b"alice" in (value or b"")]
    await client.set(keys[0], values[1] or b"")
    found = [await _read(vault, name) for name in ("alice", "bob")]
    assert sorted(found, key=str) in ([None, b"of alice"], [None, b"of bob"])
    await client.aclose()


async def test_a_document_is_over_when_its_time_is_though_redis_still_has_it(redis: RedisServer) -> None:
    now = 1000.0
    vault, client = RedisVault(redis.url, SECRET, lambda: now), connect(redis.url)
    await vault.keep("login", "alice", b"of alice", lifetime=60)
    (key,) = [key async for key in client.scan_iter("*")]
    kept = await client.get(key) or b""
    assert await vault.read("login", "alice") == b"of alice"
    now += 60
    assert await vault.read("login", "alice") is None
    assert await vault.all("login") == []
    await client.set(key, b"9" + kept)
    with pytest.raises(VaultError):
        await vault.take("login", "alice")
    await client.aclose()


async def test_no_more_is_read_than_a_document_may_have(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    vault, client = RedisVault(redis.url, SECRET), connect(redis.url)
    largest = bytes(128 * 1024 - 1024)
    await vault.keep("tokens", "a", largest, lifetime=60)
    assert await vault.read("tokens", "a") == largest
    await vault.keep("tokens", "b", b"of b")
    (key,) = [key async for key in client.scan_iter("*") if await client.strlen(key) < 1000]
    await client.setrange(key, 64 * 1024**2, b"x")
    read: list[int] = []
    monkeypatch.setattr(redis_vault, "opened", lambda key, place, data: read.append(len(data)) or b"")
    for work in (vault.read("tokens", "b"), vault.take("tokens", "b")):
        await work
    assert max(read) <= 256 * 1024
    await client.aclose()


async def _read(vault: RedisVault, name: str) -> bytes | None:
    try:
        return await vault.read("tokens", name)
    except VaultError:
        return None


async def test_one_replica_at_a_time_changes_a_document(redis: RedisServer) -> None:
    vaults = [RedisVault(redis.url, SECRET) for _ in range(4)]
    await vaults[0].keep("tokens", "a", b"0")

    async def add(vault: RedisVault) -> None:
        for _ in range(5):
            async with vault.locked("tokens", "a"):
                number = int(await vault.read("tokens", "a") or b"")
                await asyncio.sleep(0)
                await vault.keep("tokens", "a", str(number + 1).encode())

    await asyncio.gather(*map(add, vaults))
    assert await vaults[0].read("tokens", "a") == b"20"
    await vaults[0].keep("login", "b", b"once", lifetime=60)
    taken = await asyncio.gather(*(vault.take("login", "b") for vault in vaults))
    assert sorted(taken, key=bool) == [None, None, None, b"once"]


async def test_who_gives_up_just_when_redis_has_given_the_lock_does_not_keep_it(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, client, is_set = RedisVault(redis.url, SECRET), connect(redis.url), asyncio.Event()
    set_ = vault._redis.set

    async def set_without_answer(*args: Any, **options: Any) -> None:
        await set_(*args, **options)
        is_set.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(vault._redis, "set", set_without_answer)
    locking = asyncio.create_task(_lock(vault))
    await is_set.wait()
    assert len([key async for key in client.scan_iter("*:lock")]) == 1
    locking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await locking
    assert [key async for key in client.scan_iter("*:lock")] == []
    await client.aclose()


async def test_without_redis_nothing_is_read_kept_or_locked(redis: RedisServer) -> None:
    vault = RedisVault(redis.url, SECRET)
    await vault.keep("tokens", "a", b"document")
    redis.stop()
    for work in (vault.read("tokens", "a"), vault.keep("tokens", "a", b"x"), vault.all("tokens"), _lock(vault)):
        with pytest.raises(VaultError, match="cannot be asked"):
            await work


async def _lock(vault: RedisVault) -> None:
    async with vault.locked("tokens", "a"):
        pytest.fail("locked")


def test_tokens_in_redis_need_a_key_to_be_sealed_with(redis: RedisServer) -> None:
    with pytest.raises(ConfigError, match="redis_key: is needed"):
        vault_from_settings(load_settings(redis_url=redis.url))
    assert str(vault_from_settings(load_settings(redis_url=redis.url, redis_key=SECRET))).startswith("Redis at ")
