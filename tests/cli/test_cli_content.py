"""The content of a result, as text."""

import base64
from typing import Any

import pytest

from fastmcp_aggregator.cli.actions.call import readable

DATA = base64.b64encode(b"x" * 1234).decode()


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": "two\nlines [bold]"}, "two\nlines [bold]"),
        ({"type": "image", "mimeType": "image/png", "data": DATA}, "[image image/png, 1234 bytes]"),
        ({"type": "audio", "data": "eA=="}, "[audio of unknown type, 1 byte]"),
        ({"type": "resource_link", "uri": "file://a/b", "name": "b"}, "[resource link file://a/b]"),
        ({"type": "resource", "resource": {"uri": "a://b", "text": "four"}}, "[resource a://b, 4 characters]"),
        ({"type": "resource", "resource": {"uri": "a://b", "blob": "eHg="}}, "[resource a://b, 2 bytes]"),
        ({"type": "resource", "resource": {"uri": "a://b"}}, "[resource a://b, empty]"),
        ({"type": "hologram"}, "[hologram]"),
        ({"type": "text"}, "[text]"),
        ("no object", "[unknown content]"),
    ],
)
def test_text_is_printed_as_it_is_and_anything_else_as_one_line(block: Any, expected: str) -> None:
    assert readable({"content": [block]}) == expected


def test_blocks_follow_each_other_in_lines() -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert readable({"content": blocks, "structuredContent": {"unseen": 1}}) == "one\ntwo"


def test_structured_content_is_printed_if_there_is_nothing_else() -> None:
    assert readable({"content": [], "structuredContent": {"a": "ü"}}) == '{\n  "a": "ü"\n}'
    assert readable({"structuredContent": None}) == "null"


def test_a_result_without_anything_is_empty() -> None:
    assert readable({"content": []}) == ""
    assert readable({}) == ""
