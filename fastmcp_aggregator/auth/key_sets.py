"""An identity provider's key set (RFC 7517), read within bounds: whoever publishes it must not hold up the hub.

The verifier makes keys of all that is in a set at once, on the event loop. So a set has few parts and few keys, which
are short, and whose private members, that only a mistake publishes, are left out: to check those takes seconds.
"""

from __future__ import annotations

import json
from typing import Any

import httpx2

from fastmcp_aggregator.oauth.errors import NoAnswer
from fastmcp_aggregator.oauth.web import sent
from fastmcp_aggregator.protocol.parts import has_too_many_parts

_MOST_PARTS = 2000
"""Values in a set: the certificates of each key among them."""
_MOST_KEYS = 100
_LONGEST = 1400
"""Characters of a member of a key: an RSA modulus of 8192 bits has 1366."""
_PUBLIC = frozenset({"kty", "kid", "n", "e", "crv", "x", "y"})


class KeySetTransport(httpx2.AsyncBaseTransport):
    """Answers a request with the public keys of the set that is there. Holds nothing that has to be closed."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The whole answer. Raises httpx2.TransportError: there is none, or it is no key set."""
        try:
            answer = await sent(request)
        except NoAnswer as error:
            raise httpx2.TransportError(str(error)) from None
        if answer.status != 200:
            return httpx2.Response(answer.status, request=request)
        try:
            keys = json.dumps({"keys": public_keys(answer.body)})
        except (ValueError, RecursionError) as error:
            raise httpx2.TransportError(f"no key set: {type(error).__name__}") from None
        return httpx2.Response(200, content=keys, request=request)


def public_keys(document: bytes) -> list[dict[str, Any]]:
    """The keys of a set, without those that are too long, and without what is not public of them.

    Raises:
        ValueError: it is no set, or too large.
        RecursionError: it is nested too deep.
    """
    found = None if has_too_many_parts(document, _MOST_PARTS) else json.loads(document)
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list) or len(keys) > _MOST_KEYS:
        raise ValueError("no key set")
    public = ({name: key[name] for name in _PUBLIC & key.keys()} for key in keys if isinstance(key, dict))
    return [key for key in public if all(isinstance(text, str) and len(text) <= _LONGEST for text in key.values())]
