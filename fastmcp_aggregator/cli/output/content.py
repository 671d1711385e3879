"""The content of a result as text: text as it is, anything else in one line that says what it is. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastmcp_aggregator.cli.terminal.console import counted


def readable(result: Mapping[str, Any]) -> str:
    """What a tool has answered, for people; `structuredContent` only if there is nothing else."""
    content = result.get("content")
    if isinstance(content, list) and content:
        return "\n".join(_block(block) for block in content)
    if "structuredContent" in result:
        return json.dumps(result["structuredContent"], indent=2, ensure_ascii=False)
    return ""


def _block(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return f"[{kind} {block.get('mimeType', 'of unknown type')}, {counted(_decoded_size(data), 'byte')}]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[resource link {uri}]"
        case {"type": "resource", "resource": {"uri": str(uri)} as resource}:
            return f"[resource {uri}, {_size_of(resource)}]"
        case {"type": str(kind)}:
            return f"[{kind}]"
        case _:
            return "[unknown content]"


def _size_of(resource: Mapping[str, Any]) -> str:
    if isinstance(text := resource.get("text"), str):
        return counted(len(text), "character")
    if isinstance(blob := resource.get("blob"), str):
        return counted(_decoded_size(blob), "byte")
    return "empty"


def _decoded_size(data: str) -> int:
    """The number of bytes that a base64 text stands for (RFC 4648, section 4)."""
    return len(data.rstrip("=\n")) * 3 // 4
