"""Callers that are known by the credential with which they were let in lately, before a request of theirs is read.

It decides in whose turn a connection is read, and nothing else: each request is authenticated as ever. What is kept of
a credential is a digest that only this process can make. One that is refused is forgotten.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import blake2b

from fastmcp_aggregator.concurrency.limiter import Holder

HEAD_END = b"\r\n\r\n"
_MOST_LINES = 64
"""Lines of a head that are looked at."""
_LASTS = 300.0
"""Seconds for which a caller is known."""
_MOST = 1000
"""Callers that are."""
_MOST_OF_ONE = 8
"""Credentials of one of them."""

Digest = bytes


class KnownCallers:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._callers: dict[Digest, Holder] = {}
        self._until: dict[Holder, dict[Digest, float]] = {}
        """Until when each credential of a caller lasts; those that were used last are at the end, as are callers."""

    def credential_in(self, head: bytes) -> Digest | None:
        """The credential in what has come of a request; None: there is none."""
        head, end, _ = head.partition(HEAD_END)
        lines = head.split(b"\r\n", _MOST_LINES)
        for line in lines if end and len(lines) <= _MOST_LINES else lines[:-1]:  # or else that is not whole
            if token := _token_in(line):
                return blake2b(token, key=self._secret, digest_size=16).digest()
        return None

    def caller_of(self, credential: Digest | None) -> Holder:
        """The caller that was let in with it lately; None: nobody."""
        caller = None if credential is None else self._callers.get(credential)
        if credential is None or caller is None or self._until[caller][credential] <= self._clock():
            return None
        return caller

    def let_in(self, credential: Digest, caller: Holder) -> None:
        self.refused(credential)
        own = self._until[caller] = self._until.pop(caller, {})
        own[credential] = self._clock() + _LASTS
        self._callers[credential] = caller
        if len(own) > _MOST_OF_ONE:
            self.refused(next(iter(own)))
        if len(self._until) > _MOST:
            for each in list(next(iter(self._until.values()))):
                self.refused(each)

    def refused(self, credential: Digest) -> None:
        if credential in self._callers:
            caller = self._callers.pop(credential)
            del self._until[caller][credential]
            if not self._until[caller]:
                del self._until[caller]


def _token_in(line: bytes) -> bytes:
    name, _, value = line.partition(b":")
    name, value = name.lower(), value.strip()
    if name == b"authorization":
        scheme, _, value = value.partition(b" ")
        return value.strip() if scheme.lower() == b"bearer" else b""
    return value if name == b"x-api-key" else b""
