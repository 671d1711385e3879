"""The bound on the parts of a message, told from its bytes before anything parses them.

Theory. What parsing costs goes by the parts of a message, hardly by its bytes: 4 MiB of text are read in a hundredth of
a second, 4 MiB of `[[],[],…]` keep the event loop for seconds and become some hundred MiB of objects. So the parts are
counted, outside of texts, in which commas and brackets mean nothing; a long text is passed over without being looked
at. A message of many MiB is looked at in slices, between which others can have their turns.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

PARTS_LIMIT = 50_000
"""Values that a client's message may have: about what is parsed, checked and passed on within 50 ms."""
ANSWER_PARTS_LIMIT = 100_000
"""The same for a server's, which nothing checks: 10 000 resource links have 60 000."""
DIGITS_LIMIT = 1000
"""Digits that a number may have, in a message that is long: reading them takes time by their square."""
_BLOCK = b"0" * 100
_BLOCKS_LIMIT = 400
"""Hundreds of digits in all its long numbers together."""
DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_DIGITS = b"0123456789"
_LONG_NUMBER = b"0" * (DIGITS_LIMIT + 1)
_SLICE = 64 * 1024
"""Bytes that are looked at together."""
_STEP = 16
"""Slices that are looked at in one step: about two milliseconds."""


def has_too_many_parts(message: bytes, limit: int = PARTS_LIMIT, *, at_once: int = _SLICE) -> bool:
    """True if a message would cost too much to parse. One with NULs (UTF-16 and UTF-32) does when it is long."""
    return len(message) > limit and result_of(counting(message, limit, at_once))


def counting(message: bytes, limit: int, at_once: int = _SLICE) -> Generator[None, None, bool]:
    """`has_too_many_parts` in steps."""
    if len(message) <= limit:
        return False
    if b"\0" in message:
        return True
    parts = texts = blocks = 0
    number = b""
    """The digits at the end of what was looked at, which may go on."""
    for count, (outside, quotes) in enumerate(_slices(message, at_once)):
        parts += count_parts(outside)
        texts += quotes
        number += outside
        digits = number.translate(DIGITS_AS_ZEROS)
        blocks += digits.count(_BLOCK)
        # Each value may have a name and be a text: four quotes.
        if parts > limit or texts > 4 * limit or blocks > _BLOCKS_LIMIT or _LONG_NUMBER in digits:
            return True
        number = number[len(number.rstrip(_DIGITS)) :]
        blocks -= number.translate(DIGITS_AS_ZEROS).count(_BLOCK)
        if count % _STEP == _STEP - 1:
            yield
    return False


def result_of(steps: Generator[None, None, bool]) -> bool:
    """The result of steps, run one after the other, now."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def count_parts(message: bytes) -> int:
    """About how many values a message has, or more."""
    return len(message) - len(message.translate(None, b",[{"))  # a third of the time that counting takes


def _slices(message: bytes, size: int) -> Iterator[tuple[bytes, int]]:
    """The parts outside of strings, slice by slice of so many bytes, and how many quotes were there."""
    start, is_text = 0, False
    while start < len(message):
        if is_text:
            start = _near_the_end_of_text(message, start, size)
        text = message[start : start + size]
        if text.endswith(b"\\") and (len(text) - len(text.rstrip(b"\\"))) % 2:
            text += message[start + size : start + size + 1]  # what is escaped
        start += len(text)
        if b"\\" in text:  # to replace nothing takes as long as all the rest
            text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
        cut = text.split(b'"')
        yield b'"'.join(cut[is_text::2]), len(cut) - 1
        is_text ^= len(cut) % 2 == 0


def _near_the_end_of_text(message: bytes, start: int, size: int) -> int:
    """A position in the text that goes on at `start`, not behind its end, from which it can be read."""
    quote = message.find(b'"', start)
    if quote < 0:
        return len(message)
    before = message[max(start, quote - size) : quote]
    plain = len(before.rstrip(b"\\"))
    return quote - len(before) + plain if plain else start
