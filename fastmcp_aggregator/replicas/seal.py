"""Authenticated encryption of what replicas send each other through Redis (AES-256-GCM), with replay protection.

Theory. Anyone who can write to Redis may change, cut, repeat, delay or redirect a message. So each is bound to the hub,
its sender, its recipient, the time and a number of its sender's; it opens once, there, within a minute. Each sender has
a key of its own, derived from the one that all share, so that random nonces cannot meet in the life of a hub.
"""

from __future__ import annotations

import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MESSAGE_LIFETIME = 60.0
"""Seconds for which a message is good, by the clocks of both machines."""
_HEAD = struct.Struct(">4s8sQQ12s")
"""The format, the sender's id, milliseconds since 1970, the sender's number, the nonce."""
_FORMAT = b"FMA1"
_WINDOW = 4096
"""Numbers of one sender by which messages may overtake each other."""
_SENDERS = 1000
"""Senders whose numbers are remembered; only those that have the key get there."""
OVERHEAD = _HEAD.size + 16


class SealError(Exception):
    """The message was not sealed with this key for this recipient, or not now, or has come before."""


@dataclass(slots=True)
class _Sender:
    """A sliding window of the numbers that have come (as in RFC 6479)."""

    cipher: AESGCM
    highest: int = 0
    seen: int = 0

    def accept(self, number: int) -> bool:
        """True if it has not come before; records it."""
        ahead = number - self.highest
        if ahead > 0:
            self.seen = 1 if ahead >= _WINDOW else (self.seen << ahead | 1) & ((1 << _WINDOW) - 1)
            self.highest = number
            return True
        if ahead <= -_WINDOW or self.seen >> -ahead & 1:
            return False
        self.seen |= 1 << -ahead
        return True


class Seal:
    """Seals what one replica sends, and opens what it receives."""

    def __init__(self, secret: str, scope: str, sender: str, clock: Callable[[], float] = time.time) -> None:
        """`secret` is the replicas' own, `scope` the hub's, `sender` this replica's id."""
        self._secret = secret.encode()
        self._scope = scope.encode()
        self._sender = bytes.fromhex(sender)
        self._clock = clock
        self._numbers = count(1)
        self._cipher = self._cipher_of(self._sender)
        self._senders: OrderedDict[bytes, _Sender] = OrderedDict()

    def key_for(self, purpose: str) -> bytes:
        """Derive 32 bytes for something else that the replicas share."""
        return HKDF(SHA256(), 32, salt=self._scope, info=purpose.encode()).derive(self._secret)

    def sealed(self, data: bytes, recipient: str) -> bytes:
        nonce = os.urandom(12)
        head = _HEAD.pack(_FORMAT, self._sender, int(self._clock() * 1000), next(self._numbers), nonce)
        return head + self._cipher.encrypt(nonce, data, self._context(head, recipient))

    def opened(self, message: bytes, recipient: str) -> tuple[str, bytes]:
        """Return the sender's id and what it has sealed for this recipient.

        Raises:
            SealError: it is not to be trusted.
        """
        if len(message) < OVERHEAD:
            raise SealError
        head = message[: _HEAD.size]
        form, sender_id, milliseconds, number, nonce = _HEAD.unpack(head)
        if form != _FORMAT or abs(self._clock() - milliseconds / 1000) > MESSAGE_LIFETIME:
            raise SealError
        sender = self._senders.get(sender_id) or _Sender(self._cipher_of(sender_id))
        try:
            data = sender.cipher.decrypt(nonce, message[_HEAD.size :], self._context(head, recipient))
        except InvalidTag:
            raise SealError from None
        if not sender.accept(number):
            raise SealError
        self._remember(sender_id, sender)
        return sender_id.hex(), data

    def _remember(self, sender_id: bytes, sender: _Sender) -> None:
        self._senders[sender_id] = sender
        self._senders.move_to_end(sender_id)
        if len(self._senders) > _SENDERS:
            self._senders.popitem(last=False)

    def _cipher_of(self, sender_id: bytes) -> AESGCM:
        return AESGCM(self.key_for(f"messages of {sender_id.hex()}"))

    def _context(self, head: bytes, recipient: str) -> bytes:
        return b"\0".join((self._scope, recipient.encode(), head))
