"""URI template matching (RFC 6570). Pure."""

from __future__ import annotations

import re

_EXPRESSION = re.compile(r"\{[^{}]*\}")


def fits(template: str, uri: str) -> bool:
    """Whether a URI template (RFC 6570) can have this expansion, with anything for its expressions.

    Linear in the length of both: the fixed parts must stand in the URI, in their order.
    """
    first, *others = _EXPRESSION.split(template)
    if not others:
        return uri == template
    last = others.pop()
    if len(uri) < len(first) + len(last) or not (uri.startswith(first) and uri.endswith(last)):
        return False
    between = uri[len(first) : len(uri) - len(last)]
    at = 0
    for part in others:
        found = between.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True
