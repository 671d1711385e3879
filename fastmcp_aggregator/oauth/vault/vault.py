"""The vault: where tokens are kept, sealed, for all processes or replicas that use them; here in files.

Theory. A document is sealed for its id (AES-256-GCM, with kind and name as associated data), so that whoever can
write to the store cannot put one account's tokens in the place of another's. Names are not shown by the store either.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fastmcp_aggregator.early.reading import read_bytes
from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.atomic import PRIVATE, write_whole
from fastmcp_aggregator.oauth.vault.errors import VaultError
from fastmcp_aggregator.oauth.vault.sealing_key import SealingKeys

logger = logging.getLogger(__name__)

TOKENS, SERVERS, CLIENTS, LOGINS = "tokens", "server", "client", "login"
"""The kinds of documents: an account's tokens; where an address has its accounts; clients; logins that have begun."""
_LOCK_TIMEOUT = 30.0
LARGEST = 256 * 1024
"""Bytes of what is kept of a document, at most; more is not read."""
_MOST = LARGEST // 2 - 1024
"""Bytes of a document, of which a file has two characters each."""
_NONCE = 12
_SWEEP_INTERVAL = 60.0


class Vault(ABC):
    """Sealed documents by kind and name.

    Every method raises VaultError if the vault or a document cannot be read, written or locked in time.
    """

    @abstractmethod
    async def read(self, kind: str, name: str) -> bytes | None:
        """A document, or None."""

    @abstractmethod
    async def keep(self, kind: str, name: str, document: bytes, *, lifetime: float | None = None) -> None:
        """Keep a document, for so many seconds, or until it is removed."""

    @abstractmethod
    async def remove(self, kind: str, name: str) -> bool:
        """Remove a document; whether there was one."""

    @abstractmethod
    async def all(self, kind: str) -> list[bytes]:
        """The documents of a kind that can be read."""

    @abstractmethod
    def locked(self, kind: str, name: str) -> AbstractAsyncContextManager[None]:
        """Lock a document against other changes, in all processes and replicas."""

    async def take(self, kind: str, name: str) -> bytes | None:
        """A document that is good once: of all who take it, one has it."""
        document = await self.read(kind, name)
        return document if await self.remove(kind, name) else None

    async def require_room(self) -> None:
        """Try whether documents can be kept, before somebody is asked for one."""
        name = secrets.token_hex(8)
        await self.keep(LOGINS, name, b"", lifetime=_SWEEP_INTERVAL)
        await self.remove(LOGINS, name)

    async def aclose(self) -> None:  # noqa: B027 - most have none
        """End connections."""


def document_id_of(kind: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{kind}-{digest[:40]}"


def ending(document_id: str, until: str) -> str:
    """The associated data of a document that expires: its id, and when."""
    return f"{document_id}\n{until}"


def sealed(key: bytes, document_id: str, document: bytes) -> bytes:
    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, document, document_id.encode())


def opened(key: bytes, document_id: str, data: bytes) -> bytes:
    """The content sealed for this id. Raises VaultError: it was not sealed with this key for this id."""
    try:
        return AESGCM(key).decrypt(data[:_NONCE], data[_NONCE:], document_id.encode())
    except (InvalidTag, ValueError):
        raise VaultError(
            f"{document_id.splitlines()[0]} cannot be read: it was not sealed here, or is damaged; log in again"
        ) from None


class FileVault(Vault):
    """Documents in a directory of this user's alone."""

    def __init__(
        self,
        directory: Path,
        clock: Callable[[], float] = time.time,
        *,
        poll_interval: float = 0.01,
        keys: SealingKeys | None = None,
    ) -> None:
        """`poll_interval` is the seconds between two attempts to get a lock that another has; `keys` are those of the
        directory.
        """
        self._poll_interval = poll_interval
        self._directory = directory
        self._keys = keys or SealingKeys(directory)
        self._clock = clock
        self._swept_at = 0.0
        self._unreadable: set[str] = set()
        """Documents that were logged as unreadable."""

    def __str__(self) -> str:
        return str(self._directory)

    async def read(self, kind: str, name: str) -> bytes | None:
        return await asyncio.to_thread(self._read, document_id_of(kind, name))

    async def keep(self, kind: str, name: str, document: bytes, *, lifetime: float | None = None) -> None:
        await asyncio.to_thread(self._keep, document_id_of(kind, name), document, lifetime)
        if lifetime is not None and self._clock() - self._swept_at >= _SWEEP_INTERVAL:
            self._swept_at = self._clock()
            await asyncio.to_thread(self._all, kind)

    async def remove(self, kind: str, name: str) -> bool:
        return await asyncio.to_thread(self._remove, document_id_of(kind, name))

    async def all(self, kind: str) -> list[bytes]:
        return await asyncio.to_thread(self._all, kind)

    @asynccontextmanager
    async def locked(self, kind: str, name: str) -> AsyncIterator[None]:
        from filelock import AsyncFileLock, Timeout  # noqa: PLC0415 - for servers with OAuth only

        file = self._directory / f".{document_id_of(kind, name)}.lock"
        try:
            await asyncio.to_thread(self._directory.mkdir, mode=0o700, parents=True, exist_ok=True)
            lock = AsyncFileLock(file, timeout=_LOCK_TIMEOUT, mode=PRIVATE, poll_interval=self._poll_interval)
            await lock.acquire()
        except Timeout:
            raise VaultError("another process has been renewing it for too long") from None
        except OSError as error:
            raise VaultError(f"{self._directory} cannot be written to: {error.strerror}") from None
        try:
            yield
        finally:
            await lock.release()

    def _read(self, document_id: str) -> bytes | None:
        file = self._directory / document_id
        try:
            text = read_bytes(file, LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise VaultError(f"{file} cannot be read: {error.strerror}") from None
        return self._opened(document_id, text)

    def _opened(self, document_id: str, text: bytes) -> bytes | None:
        """The lines of a file are: whose key it is sealed with, until when it counts, and the sealed document."""
        try:
            source, until, body = text.split(b"\n", 2)
            ends, data = float(until), bytes.fromhex(body.decode("ascii"))
        except ValueError:
            raise VaultError(
                f"{self._directory / document_id} cannot be read: it is not a file of tokens; log in again"
            ) from None
        key = self._keys.of(source.decode("latin-1"))
        document = opened(key, ending(document_id, until.decode("latin-1")), data)
        return None if ends and ends <= self._clock() else document

    def _keep(self, document_id: str, document: bytes, lifetime: float | None) -> None:
        if len(document) > _MOST:
            raise VaultError(f"{document_id} is too large to be kept: it has over {_MOST // 1024} KiB")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            source, key = self._keys.new()
            until = "0" if lifetime is None else repr(self._clock() + lifetime)
            body = sealed(key, ending(document_id, until), document).hex()
            write_whole(self._directory / document_id, f"{source}\n{until}\n{body}", mode=PRIVATE)
        except OSError as error:
            raise VaultError(f"{self._directory} cannot be written to: {error.strerror}") from None
        except VaultError:
            raise
        except AggregatorError as error:
            raise VaultError(str(error)) from None

    def _remove(self, document_id: str) -> bool:
        try:
            (self._directory / document_id).unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise VaultError(f"{self._directory / document_id} cannot be removed: {error.strerror}") from None
        return True

    def _all(self, kind: str) -> list[bytes]:
        try:
            document_ids = sorted(file.name for file in self._directory.iterdir() if file.name.startswith(f"{kind}-"))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise VaultError(f"{self._directory} cannot be read: {error.strerror}") from None
        found = []
        for document_id in document_ids:
            try:
                document = self._read(document_id)
            except VaultError as error:
                if document_id not in self._unreadable:
                    logger.warning("%s", error)
                self._unreadable.add(document_id)
                continue
            if document is None:
                (self._directory / document_id).unlink(missing_ok=True)  # its time is over
            else:
                found.append(document)
        return found
