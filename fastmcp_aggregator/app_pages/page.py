"""The page of an app: a `text/html;profile=mcp-app` resource, and where a script may be put into it. Pure.

A host shows the page in a frame, and the page asks it for its server's tools and resources by the names that the server
gave them, which the host cannot know: it has listed them under ours, and two servers may have the same. The page is the
one place where its server is known, so its messages are rewritten there.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

SCHEME = "ui://"
"""The URI scheme of app pages (MCP Apps, SEP-1865)."""

_SCRIPT = "in_page_names.js"
_COMMENT = "<!--.*?-->"
_ATTRIBUTES = r"""(?:\s(?:"[^"]*"|'[^']*'|[^>"'])*)?"""
_BEFORE_THE_HEAD = re.compile(
    rf"\ufeff?(?:\s|{_COMMENT}|<!doctype[^>]*>)*+(?:<html{_ATTRIBUTES}>)?(?:\s|{_COMMENT})*+(?:<head{_ATTRIBUTES}>)?",
    re.IGNORECASE | re.DOTALL,
)
"""All of it is optional in HTML; a script behind it is the first thing in the head."""
_LONGEST_BEGINNING = 64 * 1024
"""Characters of it. A script in front of what goes on longer is in the head, too; to find its end would take long."""
_OWN_POLICY = re.compile(r"""<meta\b[^<>]*http-equiv\s*=\s*["']?content-security-policy""", re.IGNORECASE)
_MOST_OF_HEAD = 512 * 1024
"""Characters in which such a policy is looked for. It holds for what is behind it, so a script in front goes on."""
_DIGEST = re.compile("digest|integrity|sha256", re.IGNORECASE)
"""Stands in names of members of a page's `_meta` by which its host may find that it was changed."""
_LARGEST_PAGE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PageNames:
    """Public names of a page's server and its components, and the script that puts them into the page."""

    server_key: str
    host: str | None
    """The host of the server's public addresses; None: addresses are the server's own."""
    tools: Mapping[str, str]
    """The public name of each listed tool, by its own."""
    prompts: Mapping[str, str]

    @property
    def script(self) -> str:
        """The element that rewrites the page's messages."""
        names = {"key": self.server_key, "host": self.host, "tools": self.tools, "prompts": self.prompts}
        return f"<script>{_source()}({_embeddable(names)});</script>"


def with_own_names(result: dict[str, Any], names: PageNames) -> dict[str, Any]:
    """A `resources/read` result whose pages may use their server's own names; others stay as they are.

    So do pages with a Content-Security-Policy of their own, which may forbid the script, with a digest, or very large.
    """
    contents = result.get("contents")
    if not isinstance(contents, list) or not any(map(_is_open_page, contents)):
        return result
    return {**result, "contents": [_with_script(part, names) if _is_open_page(part) else part for part in contents]}


def _is_open_page(part: Any) -> bool:
    return isinstance(part, dict) and _is_page_type(part.get("mimeType")) and not _has_digest(part)


def _is_page_type(mime_type: Any) -> bool:
    if not isinstance(mime_type, str):
        return False
    essence, *parameters = (piece.strip().lower() for piece in mime_type.split(";"))
    return essence == "text/html" and any(p.replace('"', "") == "profile=mcp-app" for p in parameters)


def _has_digest(part: Mapping[str, Any]) -> bool:
    meta = part.get("_meta")
    return isinstance(meta, dict) and any(map(_DIGEST.search, meta))


def _with_script(part: dict[str, Any], names: PageNames) -> dict[str, Any]:
    if isinstance(part.get("text"), str):
        return {**part, "text": _inserted(part["text"], names)}
    try:
        text = base64.b64decode(part.get("blob") or "", validate=True).decode()
    except (TypeError, binascii.Error, UnicodeDecodeError):
        return part
    return {**part, "blob": base64.b64encode(_inserted(text, names).encode()).decode()} if text else part


def _inserted(html: str, names: PageNames) -> str:
    if len(html) > _LARGEST_PAGE or _OWN_POLICY.search(html, 0, _MOST_OF_HEAD):
        return html
    start = _BEFORE_THE_HEAD.match(html, 0, _LONGEST_BEGINNING)
    at = start.end() if start else 0
    return f"{html[:at]}{names.script}{html[at:]}"


def _embeddable(value: Any) -> str:
    """The value as JavaScript that no HTML parser takes for the end of the script."""
    return json.dumps(value, separators=(",", ":")).replace("<", r"\u003c")


@cache
def _source() -> str:
    return files(__package__).joinpath(_SCRIPT).read_text(encoding="utf-8").strip()
