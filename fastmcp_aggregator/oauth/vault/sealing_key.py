"""The key that tokens in files are sealed with: in the system's keyring where there is one, else in a file beside them.

Only the key is in the keyring, because some keyrings take no more than 2.5 kB, and some ask the person for each entry.
A file says which of the two it was sealed with, so that both may be in use.
"""

from __future__ import annotations

import base64
import logging
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from fastmcp_aggregator.errors import AggregatorError
from fastmcp_aggregator.files.atomic import PRIVATE
from fastmcp_aggregator.files.kept_key import kept_key
from fastmcp_aggregator.oauth.vault.errors import VaultError

logger = logging.getLogger(__name__)

KEYRING, FILE = "keyring", "file"
_SERVICE = "fastmcp-aggregator"
_LEAST_PRIORITY = 1.0
"""The least priority of the library's keyrings: those below keep nothing, or plain text."""
_BYTES = 32


class SealingKeys:
    """The sealing keys of one vault directory."""

    def __init__(self, directory: Path, *, timeout: float = 15.0) -> None:
        """`timeout` is the seconds that a keyring has: some ask a person."""
        self._timeout = timeout
        self._directory = directory
        self._name = f"oauth tokens in {directory.absolute()}"
        self._known: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._asking: Future[bytes | None] | None = None
        """The last request to the keyring."""

    def new(self) -> tuple[str, bytes]:
        """The source and the key for what is sealed now. Raises VaultError: there is none."""
        with self._lock:
            if KEYRING not in self._known:
                key = self._in_keyring(make=True)
                if key is not None:
                    self._known[KEYRING] = key
            source = KEYRING if KEYRING in self._known else FILE
        return source, self.of(source)

    def of(self, source: str) -> bytes:
        """The key from this source. Raises VaultError: it is not there."""
        with self._lock:
            if source not in self._known:
                self._known[source] = self._found(source)
            return self._known[source]

    def _found(self, source: str) -> bytes:
        if source == FILE:
            try:
                return kept_key(self._directory / "key")
            except (OSError, ValueError):
                raise VaultError(f"the key in {self._directory / 'key'} cannot be read") from None
        key = self._in_keyring(make=False) if source == KEYRING else None
        if key is None:
            raise VaultError(
                "it is sealed with a key in the system's keyring, which is not available here; log in again as the "
                "user and in the session in which it is to be used"
            )
        return key

    def _in_keyring(self, *, make: bool) -> bytes | None:
        if self._asking is not None and not self._asking.done():
            return None  # it hangs, or waits for a person: one question is enough
        self._asking = _in_thread(partial(self._ask_keyring, make=make))
        try:
            return self._asking.result(self._timeout)
        except TimeoutError:
            logger.warning("the system's keyring does not answer")
        except Exception as error:
            logger.debug("the system's keyring cannot be used: %s", error.__class__.__name__)
        return None

    def _ask_keyring(self, *, make: bool) -> bytes | None:
        import keyring  # noqa: PLC0415 - for servers with OAuth only
        from filelock import FileLock  # noqa: PLC0415 - the same

        backend = keyring.get_keyring()
        if backend.priority < _LEAST_PRIORITY:
            return None
        kept = backend.get_password(_SERVICE, self._name)
        if kept is None and make:
            with FileLock(self._directory / ".key.lock", mode=PRIVATE):  # the first who makes one makes that of all
                kept = backend.get_password(_SERVICE, self._name)
                if kept is None:
                    kept = base64.b64encode(secrets.token_bytes(_BYTES)).decode()
                    backend.set_password(_SERVICE, self._name, kept)
                    kept = backend.get_password(_SERVICE, self._name)
        key = None if kept is None else base64.b64decode(kept)
        if key is not None and len(key) != _BYTES:
            raise AggregatorError("the keyring has something else there")
        return key


def _in_thread(function: Callable[[], bytes | None]) -> Future[bytes | None]:
    """The result of a function that may hang for good; it does not keep the program from ending."""
    result: Future[bytes | None] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="keyring", daemon=True).start()
    return result
