"""Public URIs of resources and resource templates, `scheme://{serverKey}/rest`; the expansions of a template.

    file:///a/b    of `files`   ⇄   file://files//a/b
    test://{id}    of `demo`    ⇄   test://demo/{id}
    urn:isbn:1     of `books`   ⇄   urn://books:/isbn:1

The key stands where a host stands in a URL, percent-encoded where a host could not hold it. A URI without `://`
has no such place, so it is given one, and an empty port marks it; no key contains `:`.
Only a text without a scheme, such as the template `{+path}`, has nowhere to carry the key and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, unquote

LONGEST_WATCHED = 8192
"""Characters of a URI that can be subscribed to, and of one that a server says has changed."""

_HIERARCHICAL = "://"
_OPAQUE_MARK = ":"
_MOST_SLASHES, _LONGEST_REWRITTEN = 256, 8192
"""Positions in an address where a slash may have been left out, and its characters: each costs a copy of it."""

# Up to the first colon outside template expressions: `{var:3}` is a prefix modifier (RFC 6570, 2.4.1).
_OPAQUE_SCHEME = re.compile(r"((?:\{[^{}]*\}|[^:{])*):")
_EXPRESSION = re.compile(r"\{[^{}]*\}")


def public_uri(server_key: str, original_uri: str) -> str:
    """The address of a child's resource or template as clients see it; unchanged if it has no scheme."""
    host = host_of(server_key)
    scheme, mark, rest = original_uri.partition(_HIERARCHICAL)
    if mark:
        return f"{scheme}://{host}/{rest}"
    opaque = _OPAQUE_SCHEME.match(original_uri)
    if opaque is None:
        return original_uri
    return f"{opaque[1]}://{host}{_OPAQUE_MARK}/{original_uri[opaque.end() :]}"


@lru_cache(maxsize=1000)
def host_of(server_key: str) -> str:
    """The host part of a server's public URIs: its key, percent-encoded."""
    # "surrogatepass", because JSON can carry half of a surrogate pair, and UTF-8 cannot.
    return quote(server_key, safe="", errors="surrogatepass")


_SEPARATORS = (":", "__", ".")
_ROUNDS, _MOST_TRIED = 3, 4
_LONGEST_ROUND = 256
"""Characters."""


def goes_round(server_key: str, id_: str) -> bool:
    """True if the name or URI of a component shows that its server leads back here: then each reading of the list
    repeats the one before, once more behind our key of the server. Three times the same beginning, which ends with the
    key, is no accident.
    """
    scheme, mark, rest = id_.partition(_HIERARCHICAL)
    if mark and ":" not in scheme:
        return _repeats(rest, f"{host_of(server_key)}/")
    return any(_repeats(id_, f"{server_key}{separator}") for separator in _SEPARATORS)


def _repeats(text: str, link: str) -> bool:
    end = 0
    for _ in range(_MOST_TRIED if text.count(link) >= _ROUNDS else 0):
        at = text.find(link, end, _LONGEST_ROUND)
        if at < 0:
            return False
        end = at + len(link)
        if text.startswith(text[:end] * _ROUNDS):
            return True
    return False


def split_public_uri(uri: str) -> tuple[str, str] | None:
    """The server key and the original URI: the exact inverse of `public_uri`.

    `None` for whatever `public_uri` does not produce, so that each resource has one address and no other.
    """
    scheme, _, tail = uri.partition(_HIERARCHICAL)
    host, _, rest = tail.partition("/")
    is_opaque = host.endswith(_OPAQUE_MARK)
    server_key = _decoded(host.removesuffix(_OPAQUE_MARK))
    original_uri = f"{scheme}:{rest}" if is_opaque else f"{scheme}://{rest}"
    if not server_key or public_uri(server_key, original_uri) != uri:
        return None
    return server_key, original_uri


def is_without_key(original_uri: str) -> bool:
    """True if nothing can carry the key in the public address."""
    if ":" not in original_uri:
        return True
    return _HIERARCHICAL not in original_uri and _OPAQUE_SCHEME.match(original_uri) is None


def as_pydantic_writes(uri: str) -> str:
    """`file://key//path` becomes `file://key/path` in FastMCP's models, and so it comes back from their readers."""
    scheme, separator, rest = uri.partition(_HIERARCHICAL)
    return f"{scheme}://{rest.replace('//', '/', 1)}" if separator and scheme.lower() == "file" else uri


def written_by_pydantic_as(uri: str) -> Iterator[str]:
    """The addresses that become this one there, and are another; none, if it is very long."""
    if len(uri) > _LONGEST_REWRITTEN:
        return
    scheme, separator, rest = uri.partition(_HIERARCHICAL)
    if not separator or scheme.lower() != "file":
        return
    slash = rest.find("/")
    for _ in range(_MOST_SLASHES):
        if slash < 0 or "//" in rest[:slash]:
            return
        yield f"{scheme}://{rest[:slash]}/{rest[slash:]}"
        slash = rest.find("/", slash + 1)


def _decoded(host: str) -> str | None:
    try:
        return unquote(host, errors="surrogatepass")
    except UnicodeDecodeError:
        return None


def plain_uri(uri: str) -> str:
    """One form for all spellings of a URI that a server may take for the same (RFC 3986, 6.2.2), and for some that it
    may not: without case, percent-encoding, dot segments, empty query and fragment.
    """
    scheme, mark, rest = unquote(uri.partition("#")[0].removesuffix("?")).casefold().partition(_HIERARCHICAL)
    segments: list[str] = []
    for segment in rest.split("/"):
        if segment == ".." and len(segments) > 1:
            segments.pop()
        elif segment not in (".", ".."):
            segments.append(segment)
    return f"{scheme}{mark}{'/'.join(segments)}"


_MOST_COMPARED = 2_000_000
"""Characters that are compared with templates for one URI: a few hundredths of a second. Each comparison counts as
`_COMPARISON` and the URI: to look for a part takes up to the product of both lengths.
"""
_COMPARISON = 200


def fits_any(templates: Iterable[str], uri: str, *, otherwise: bool) -> bool:
    """True if one of these templates can have this expansion; `otherwise` if matching takes too long."""
    left = _MOST_COMPARED
    for template in templates:
        left -= _COMPARISON + len(uri) + len(template)
        if left < 0:
            return otherwise
        if fits(template, uri):
            return True
    return False


def fits(template: str, uri: str) -> bool:
    """True if a URI template (RFC 6570) can have this expansion, with anything for its expressions. The fixed parts
    must stand in the URI, in their order.
    """
    if "{" not in template:
        return uri == template
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
