"""Redaction of secret values in texts: wherever one stands, there are stars instead.

Values of fewer than four characters are left alone: they stand in every other word, and the rest would give them away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote

SHORTEST = 4
"""Characters of a value that is redacted, at least."""
STARS = "***"

_CREDENTIALS = re.compile(r"(?:basic|bearer|token|apikey) +(\S+)", re.IGNORECASE)  # RFC 9110, section 11.4
_LONG_LINE = 16
"""Characters of a line that gives away by itself a secret of several lines, such as a key in PEM."""


class Redactor:
    """Redacts the values that it has been given."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._hidden: list[str] = []
        self._hidden_bytes: list[bytes] = []
        self._sources: list[Callable[[], Iterable[str]]] = []
        self.learn(values)

    def learn(self, values: Iterable[str]) -> None:
        """Redact these, too."""
        new = {*values} - self._known
        if not new:
            return
        self._known |= new
        forms = {form for value in self._known for form in _forms(value) if len(form) >= SHORTEST}
        # The longest first, so that nothing is left of one that contains another.
        self._hidden = sorted(forms, key=lambda form: (-len(form), form))
        self._hidden_bytes = [form.encode(errors="surrogatepass") for form in self._hidden]

    def follow(self, source: Callable[[], Iterable[str]]) -> None:
        """Redact what `source` returns from now on, too; what it once returned stays redacted."""
        self._sources.append(source)

    def text(self, text: str) -> str:
        for source in self._sources:
            self.learn(source())
        for value in self._hidden:
            text = text.replace(value, STARS)
        return text

    def data(self, data: bytes) -> bytes:
        """Redact UTF-8, with the values known by now: the sources are not asked."""
        for value in self._hidden_bytes:
            data = data.replace(value, STARS.encode())
        return data


def _forms(value: str) -> Iterator[str]:
    """The value, what of it is a secret by itself, and how libraries write these."""
    parts = [value]
    if credentials := _CREDENTIALS.fullmatch(value):
        parts.append(credentials[1])
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        parts += [line for line in lines if len(line) >= _LONG_LINE]
    for part in parts:
        yield from (part, json.dumps(part)[1:-1], repr(part)[1:-1], quote(part, safe="", errors="replace"))
