"""URI rewriting in listed components, results and errors: the child's addresses, as the client can use them.

A URI that a child hands out is read back through the aggregator, so it must carry the server key. Everything
else stays as it is; an object without addresses is returned as it came, not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from fastmcp_aggregator.extensions.extension import publish_uri
from fastmcp_aggregator.extensions.table import rewrite_of
from fastmcp_aggregator.protocol.methods import TOOLS_CALL, TOOLS_LIST

Publish = Callable[[str], str] | None

_NOT_FOUND = frozenset({INVALID_PARAMS, -32002})
"""The errors whose `data.uri` says what there is not: since 2026-07-28 (SEP-2164), and before."""
_OF_TOOL = rewrite_of(TOOLS_LIST.name)
_OF_TOOL_RESULT = rewrite_of(TOOLS_CALL.name)


def publish_addresses(component: dict[str, Any], publish: Publish) -> dict[str, Any]:
    """A listed component; only a tool's `_meta` can name a resource."""
    return component if publish is None else _OF_TOOL(component, publish)


def publish_tool_result(result: dict[str, Any], publish: Publish) -> dict[str, Any]:
    """A `tools/call` result: its `_meta`, and resource links and embedded resources in its content."""
    if publish is None:
        return result
    if "_meta" in result:
        result = _OF_TOOL_RESULT(result, publish)
    content = result.get("content")
    if not isinstance(content, list) or not any(map(_has_address, content)):
        return result
    return {**result, "content": [_publish_block(block, publish) for block in content]}


def publish_task(task: dict[str, Any], publish: Publish) -> dict[str, Any]:
    """A `tasks/get` result, or a notification of a task: the result of the tool, and the error in its place."""
    if publish is None:
        return task
    result, error = task.get("result"), task.get("error")
    if isinstance(result, dict):
        task = {**task, "result": publish_tool_result(result, publish)}
    if isinstance(error, dict) and error.get("code") in _NOT_FOUND:
        task = {**task, "error": {**error, "data": publish_uri(error.get("data"), publish)}}
    return task


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
    return {**result, "contents": [publish_uri(part, publish) for part in contents]}


@contextmanager
def publishing_errors(publish: Publish) -> Iterator[None]:
    """Errors that name a resource which there is not, in `data.uri`."""
    try:
        yield
    except MCPError as error:
        published = published_error(error, publish)
        if published is error:
            raise
        raise published from error


def published_error(error: MCPError, publish: Publish) -> MCPError:
    """The error with public addresses; the same object if it has none."""
    data = error.error.data
    if publish is None or error.error.code not in _NOT_FOUND:
        return error
    published = publish_uri(data, publish)
    return error if published is data else MCPError(error.error.code, error.error.message, published)


def _has_address(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") in ("resource_link", "resource")


def _publish_block(block: Any, publish: Callable[[str], str]) -> Any:
    if not _has_address(block):
        return block
    if block["type"] == "resource_link":
        return publish_uri(block, publish)
    return {**block, "resource": publish_uri(block["resource"], publish)} if "resource" in block else block
