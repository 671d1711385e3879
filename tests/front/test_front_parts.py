"""Messages of many small parts: refused by their bytes, before they are parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.harness import config, lean
from support.serving import served

from fastmcp_aggregator import build_aggregator
from fastmcp_aggregator.front.wire.errors import too_many_parts
from fastmcp_aggregator.protocol.parts import PARTS_LIMIT, has_too_many_parts

MANY: dict[str, Any] = {
    "lists": [[]] * PARTS_LIMIT,
    "names": {f"k{number}": 0 for number in range(PARTS_LIMIT + 1)},
    "objects": [{"a": []}] * PARTS_LIMIT,
    "numbers": [1] * (PARTS_LIMIT + 2),
    "texts": [","] * (PARTS_LIMIT + 2),
    "names of quotes": {'"\\' * number: "\\" for number in range(1, 300)} | {"": [[]] * PARTS_LIMIT},
    "long number": [0] * PARTS_LIMIT + [10**1000],
    "long numbers": [10**990] * 60,
    "a long number from one slice to the next": ["x" * (64 * 1024 - 700), 10**1200],
    "lists behind texts of backslashes": ["\\" * number for number in range(500)] + [[]] * PARTS_LIMIT,
}
FEW: dict[str, Any] = {
    "text": '[{"a": [1, 2]}, \\"' * PARTS_LIMIT,
    "text of 5 MiB": '[{"a": [1, 2]}, \\"' * 350_000,
    "image": {"data": "iVBOR," * 1_000_000},
    "text of backslashes": "\\" * PARTS_LIMIT + ',"' * PARTS_LIMIT,
    "digits as text": "7" * (2 * PARTS_LIMIT),
    "long numbers": [10**90] * 1000,
    "a few very long numbers": ["x" * PARTS_LIMIT] + [10**990] * 40,
    "rows": [{"id": number, "name": "Ann", "n": 1.5} for number in range(PARTS_LIMIT // 5)],
}


def call(arguments: Any) -> dict[str, Any]:
    return {"name": "a:echo", "arguments": {"x": arguments}}


@pytest.mark.parametrize("arguments", MANY.values(), ids=MANY)
def test_what_would_cost_too_much_to_parse_is_told_from_its_bytes(arguments: Any) -> None:
    assert has_too_many_parts(json.dumps(arguments).encode())
    assert has_too_many_parts(json.dumps(arguments, separators=(",", ":")).encode())
    assert has_too_many_parts(json.dumps(arguments).encode("utf-16"))


@pytest.mark.parametrize("arguments", FEW.values(), ids=FEW)
def test_what_is_long_and_has_few_parts_is_not_refused(arguments: Any) -> None:
    assert not has_too_many_parts(json.dumps(arguments).encode())


@pytest.mark.parametrize("size", [1, 2, 3, 64])
@pytest.mark.parametrize(
    "text", ['"\\\\",[1]', '"\\"",{"a":[2]}', 'x"y,\\\\\\"[,"[3],', "[4,5" + "6" * 200, '"a' + "\\" * 130 + '",[7]']
)
def test_where_a_slice_ends_does_not_matter(text: str, size: int) -> None:
    message = (text * 20).encode()
    least = next(limit for limit in range(1000) if not has_too_many_parts(message, limit))
    assert [has_too_many_parts(message, limit, at_once=size) for limit in (least - 1, least)] == [True, False]


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ('{"jsonrpc": "2.0", "id": 7, "method": "x", "params": {"id": 8}}', 7),
        ('{"id":"a-1","jsonrpc":"2.0","method":"x"}', "a-1"),
        ('{"method":"x","params":{"id":8},"jsonrpc":"2.0","id":7}', 7),
        ('{"method":"x","params":{"id":8}}', None),
        ('{"method":"x","params":[{"a":1,"id":8}]}', None),
        ("[1]", None),
    ],
)
def test_the_error_has_the_id_that_an_edge_of_the_message_tells(message: str, request_id: Any) -> None:
    assert too_many_parts(message.encode()).id == request_id


@pytest.mark.parametrize("arguments", MANY.values(), ids=MANY)
async def test_over_http_it_is_refused_on_every_way_and_the_next_call_is_served(arguments: Any) -> None:
    app = build_aggregator(config(a=lean()))
    async with served(app) as front, front.browser() as http:
        by_rest = await http.post("/mcp/tools/call", json=call(arguments))
        assert (by_rest.status_code, by_rest.json()["error"]["code"]) == (413, -32600)
        for modern in (False, True):
            client = await front.connect(modern=modern)
            assert (await client.error("tools/call", call(arguments)))["code"] == -32600
            assert 413 in client.statuses.values()
            assert await client.result("tools/call", call(FEW["rows"]))
        old = await front.connect_sse()
        assert (await old.post({"id": 9, "method": "tools/call", "params": call(arguments)})).status_code == 413
