"""The vault of all replicas together: tokens in Redis, sealed with a key that is derived from `redis_key`."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.vault import LARGEST, Vault, document_id_of, ending, opened, sealed
from fastmcp_aggregator.replicas.redis_connection import LOST, PREFIX, address_of, connect

_LOCK_LIFE = 45.0
"""Seconds that a lock is held at most: longer than an authorization server may take to answer, twice."""
_LOCK_TIMEOUT = 50.0
_PAGE = 500


class RedisVault(Vault):
    """Documents in one Redis. Names are hashed; what is in a document is for those who have the secret."""

    def __init__(self, url: str, secret: str, clock: Callable[[], float] = time.time, *, poll: float = 0.05) -> None:
        """`poll` is how many seconds apart it tries to take a lock.

        Raises: ConfigError, if this cannot be the address of a Redis. Connects with the first document.
        """
        self._clock = clock
        self._poll = poll
        self._redis = connect(url)
        self._key = HKDF(SHA256(), 32, salt=PREFIX.encode(), info=b"oauth accounts").derive(secret.encode())

    def __str__(self) -> str:
        return f"Redis at {address_of(self._redis)}"

    async def read(self, kind: str, name: str) -> bytes | None:
        document_id = document_id_of(kind, name)
        with self._lost():
            data: Any = await self._redis.getrange(_key_of(document_id), 0, LARGEST)
        return self._opened(document_id, data) if data else None

    async def keep(self, kind: str, name: str, document: bytes, *, lifetime: float | None = None) -> None:
        document_id = document_id_of(kind, name)
        milliseconds = None if lifetime is None else max(1, int(lifetime * 1000))
        until = "0" if lifetime is None else repr(self._clock() + lifetime)
        data = until.encode() + b"\n" + sealed(self._key, ending(document_id, until), document)
        with self._lost():
            await self._redis.set(_key_of(document_id), data, px=milliseconds)

    async def remove(self, kind: str, name: str) -> bool:
        with self._lost():
            return bool(await self._redis.delete(_key_of(document_id_of(kind, name))))

    async def all(self, kind: str) -> list[bytes]:
        found = []
        with self._lost():
            async for key in self._redis.scan_iter(_key_of(f"{kind}-*"), count=_PAGE):
                data: Any = await self._redis.getrange(key, 0, LARGEST)
                document_id = key.decode("latin-1").rpartition(":")[2]
                with suppress(VaultError):
                    if data and (document := self._opened(document_id, data)) is not None:
                        found.append(document)
        return found

    @asynccontextmanager
    async def locked(self, kind: str, name: str) -> AsyncIterator[None]:
        document_id = f"{_key_of(document_id_of(kind, name))}:lock"
        lock = self._redis.lock(document_id, timeout=_LOCK_LIFE, sleep=self._poll, blocking_timeout=_LOCK_TIMEOUT)
        token = secrets.token_bytes(16)
        try:
            with self._lost():
                if not await lock.acquire(token=token):
                    raise VaultError("another replica has been renewing it for too long")
            yield
        finally:  # also if Redis gave it when nobody waited for that any more
            with suppress(*LOST):
                await lock.do_release(token)

    async def aclose(self) -> None:
        await self._redis.aclose()

    def _opened(self, document_id: str, data: bytes) -> bytes | None:
        """None if its time is over: Redis forgets it then, but whoever can write there could have it stay."""
        until, _, body = data.partition(b"\n")
        document = opened(self._key, ending(document_id, until.decode("latin-1")), body)
        ends = float(until)
        return None if ends and ends <= self._clock() else document

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """Translate what is raised when Redis cannot be asked."""
        try:
            yield
        except LOST as error:
            raise VaultError(f"{self} cannot be asked ({error.__class__.__name__})") from None


def _key_of(document_id: str) -> str:
    return f"{PREFIX}:account:{document_id}"
