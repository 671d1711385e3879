"""Foreign text for logs and terminals: characters that end a line, move the cursor or turn text around are escaped."""

from __future__ import annotations

import json


def printable(text: str, keep: str = "") -> str:
    """The text in one line, with an escape as in Python for what is not printable, but for what is in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text)


def json_line(fields: dict[str, str]) -> str:
    """The fields as an object of JSON in one line, with an escape as in JSON for what is not printable."""
    text = json.dumps(fields, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text) + "\n"
