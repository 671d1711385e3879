"""The bound on the parts of a message, told from its bytes before anything parses them.

Theory. What parsing costs goes by the parts of a message, hardly by its bytes: 4 MiB of text are read in a hundredth of
a second, 4 MiB of `[[],[],…]` keep the event loop for seconds and become some hundred MiB of objects. Counting errs on
the side of more: only a message that seems to have too many parts is looked at again without its texts, in which commas
and brackets mean nothing.
"""

from __future__ import annotations

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
_LONG_NUMBER = b"0" * (DIGITS_LIMIT + 1)


def has_too_many_parts(message: bytes, limit: int = PARTS_LIMIT) -> bool:
    """Whether a message would cost too much to parse. One with NULs (UTF-16 and UTF-32) does when it is long."""
    if len(message) <= limit:
        return False
    return b"\0" in message or (_exceeds(message, limit) and _exceeds_outside_of_texts(message, limit))


def count_parts(message: bytes) -> int:
    """About how many values a message has, or more."""
    return len(message) - len(message.translate(None, b",[{"))  # a third of the time that counting takes


def _exceeds(message: bytes, limit: int) -> bool:
    if count_parts(message) > limit:
        return True
    digits = message.translate(DIGITS_AS_ZEROS)
    return _LONG_NUMBER in digits or digits.count(_BLOCK) > _BLOCKS_LIMIT


def _exceeds_outside_of_texts(message: bytes, limit: int) -> bool:
    # To replace nothing takes as long as all the rest.
    unescaped = message.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in message else message
    # Each value may have a name and be a text: four quotes. Cutting at many more would cost what is to be prevented.
    return unescaped.count(b'"') > 4 * limit or _exceeds(b'"'.join(unescaped.split(b'"')[::2]), limit)
