"""The first answers to one client: a handshake of a client that was served before, then lists and pings.

A client that is not known is none of its business: then it answers nothing, or, once it is told how, the handshake.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastmcp_aggregator.early.answers import Entries, signature_of

LIST_METHODS = frozenset({"tools/list", "resources/list", "resources/templates/list", "prompts/list"})
_HANDSHAKES = frozenset({"initialize", "server/discover"})
_META = "io.modelcontextprotocol/"
_LONGEST_LINE = 1024**2

Introduce = Callable[[str, Mapping[str, Any]], Mapping[str, bytes] | None]
"""Answers a handshake, given as its method and parameters, by the method."""


class KnownClient:
    """One client, and the answers that are known. Pure."""

    def __init__(self, entries: Entries, introduce: Introduce | None = None) -> None:
        self._entries = entries
        self._introduce = introduce
        self._known: Mapping[str, bytes] | None = None
        self._signature: str | None = None
        """The signature of a modern client, which identifies itself in each request."""
        self.is_passive = False
        """True if it answers nothing."""
        self.first: bytes | None = None
        self.answered: dict[str, bytes] = {}

    def introduce_by(self, introduce: Introduce) -> None:
        """Answer the handshake of a client that was not known, too; what it has sent so far is to be given again."""
        if self.first is None:
            self._introduce, self.is_passive = introduce, False

    def answer(self, line: bytes) -> bytes | None:
        """The line that answers a line; None: it is not for this one."""
        if self.is_passive or not line or len(line) > _LONGEST_LINE:
            return None
        try:
            request = json.loads(line)
            result = self._result_of(request) if _is_request(request) else None
        except (ValueError, RecursionError):
            return None
        if result is None:
            return None
        if self.first is None:
            self.first = line
        if request["method"] in LIST_METHODS:
            self.answered[request["method"]] = result
        identity = json.dumps(request["id"]).encode()
        return b'{"jsonrpc":"2.0","id":' + identity + b',"result":' + result + b"}\n"

    def _result_of(self, request: Mapping[str, Any]) -> bytes | None:
        method, params = request["method"], request.get("params", {})
        if not isinstance(params, dict):
            return None
        meta = params.get("_meta", {})
        is_modern = isinstance(meta, dict) and f"{_META}protocolVersion" in meta
        if self._known is None:
            self._meet(method, params, is_modern=is_modern)
        if self._known is None or self.is_passive:
            return None
        if is_modern != (self._signature is not None) or (is_modern and _modern_signature(meta) != self._signature):
            return None
        if method == "ping" and not params and not is_modern:
            return b"{}"
        is_first = self.first is None
        if method in LIST_METHODS or method == "server/discover":
            return self._known.get(method) if params.keys() <= {"_meta"} else None
        return self._known.get(method) if is_first and method == "initialize" else None

    def _meet(self, method: str, params: Mapping[str, Any], *, is_modern: bool) -> None:
        """The first request tells who the client is."""
        signature = signature_in(method, params)
        if is_modern:
            self._signature = signature
        self._known = None if signature is None else self._entries.get(signature)
        if self._known is None and signature is not None and self._introduce and method in _HANDSHAKES:
            self._known = self._introduce(method, params)
        if self._known is None or method not in self._known:
            self.is_passive = True


def signature_in(method: str, params: Mapping[str, Any]) -> str | None:
    """The signature of the client that sends such a request as its first."""
    meta = params.get("_meta")
    if isinstance(meta, dict) and f"{_META}protocolVersion" in meta:
        return _modern_signature(meta)
    return _legacy_signature(params) if method == "initialize" else None


def _is_request(message: object) -> bool:
    return (
        isinstance(message, dict)
        and message.keys() <= {"jsonrpc", "id", "method", "params"}
        and message.get("jsonrpc") == "2.0"
        and isinstance(message.get("method"), str)
        and type(message.get("id")) in (int, str)
    )


def _legacy_signature(params: Mapping[str, Any]) -> str | None:
    info, capabilities = params.get("clientInfo"), params.get("capabilities")
    is_usual = params.keys() == {"protocolVersion", "capabilities", "clientInfo"} and isinstance(capabilities, dict)
    if not is_usual or not isinstance(info, dict) or not isinstance(info.get("version"), str):
        return None
    return signature_of(params["protocolVersion"], capabilities, info)


def _modern_signature(meta: Mapping[str, Any]) -> str | None:
    info = meta.get(f"{_META}clientInfo")
    if not isinstance(info, dict) or not isinstance(info.get("version"), str):
        return None
    return signature_of(meta[f"{_META}protocolVersion"], meta.get(f"{_META}clientCapabilities"), info)
