"""URI rewriting in listed components, results and errors: the child's addresses, as the client can use them.

A URI that a child hands out is read back through the aggregator, so it must carry the server key. Everything
else stays as it is; an object without addresses is returned as it came, not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mcp.shared.exceptions import MCPError

Publish = Callable[[str], str] | None


def publish_addresses(component: dict[str, Any], publish: Publish) -> dict[str, Any]:
    """A listed component; only a tool's `_meta` can name a resource."""
    return component if publish is None else _publish_user_interface(component, publish)


def publish_tool_result(result: dict[str, Any], publish: Publish) -> dict[str, Any]:
    """A `tools/call` result: its `_meta`, and resource links and embedded resources in its content."""
    if publish is None:
        return result
    result = _publish_user_interface(result, publish)
    content = result.get("content")
    if not isinstance(content, list) or not any(map(_has_address, content)):
        return result
    return {**result, "content": [_publish_block(block, publish) for block in content]}


def publish_prompt_result(result: dict[str, Any], publish: Publish) -> dict[str, Any]:
    """A `prompts/get` result: the content of each message."""
    messages = result.get("messages")
    if publish is None or not isinstance(messages, list):
        return result
    return {
        **result,
        "messages": [
            {**message, "content": _publish_block(message["content"], publish)}
            if isinstance(message, dict) and _has_address(message.get("content"))
            else message
            for message in messages
        ],
    }


def publish_read_result(result: dict[str, Any], publish: Publish) -> dict[str, Any]:
    """A `resources/read` result: the address of each part."""
    contents = result.get("contents")
    if publish is None or not isinstance(contents, list):
        return result
    return {**result, "contents": [_publish_uri(part, publish) for part in contents]}


def _publish_user_interface(item: dict[str, Any], publish: Callable[[str], str]) -> dict[str, Any]:
    """The page that the `_meta` of a tool, or of its result, names in MCP Apps; older servers have the flat key."""
    meta = item.get("_meta")
    if not isinstance(meta, dict):
        return item
    changed = dict(meta)
    ui = meta.get("ui")
    if isinstance(ui, dict) and isinstance(ui.get("resourceUri"), str):
        changed["ui"] = {**ui, "resourceUri": publish(ui["resourceUri"])}
    if isinstance(meta.get("ui/resourceUri"), str):
        changed["ui/resourceUri"] = publish(meta["ui/resourceUri"])
    return {**item, "_meta": changed} if changed != meta else item


@contextmanager
def publishing_errors(publish: Publish) -> Iterator[None]:
    """Errors over a resource: `data.uri`, which says what there is not (2026-07-28, SEP-2164)."""
    try:
        yield
    except MCPError as error:
        data = error.error.data
        published = data if publish is None else _publish_uri(data, publish)
        if published is data:
            raise
        raise MCPError(error.error.code, error.error.message, published) from error


def _has_address(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("resource_link", "resource")


def _publish_block(block: Any, publish: Callable[[str], str]) -> Any:
    if not _has_address(block):
        return block
    if block["type"] == "resource_link":
        return _publish_uri(block, publish)
    return {**block, "resource": _publish_uri(block["resource"], publish)} if "resource" in block else block


def _publish_uri(item: Any, publish: Callable[[str], str]) -> Any:
    if isinstance(item, dict) and isinstance(item.get("uri"), str):
        return {**item, "uri": publish(item["uri"])}
    return item
