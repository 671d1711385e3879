"""Argument completions: asked of the child under its own names, answered as it answers."""

from __future__ import annotations

import json

import pytest
from support.harness import RawClient
from ways import EVERY_WAY, Way, ways

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASKED = {
    "argument": {"name": "topic", "value": "é"},
    "context": {"arguments": {"other": "x"}},
    "x-unknown": {"deep": [None]},
}


@EVERY_WAY
async def test_a_prompts_argument_is_completed_by_its_child(way: Way, client: RawClient) -> None:
    ref = {"type": "ref/prompt", "name": f"{way.server}:play", "title": "own"}
    result = await client.result("completion/complete", {"ref": ref, **ASKED})
    (seen,) = result["completion"]["values"]
    assert json.loads(seen) == {"ref": {**ref, "name": "play"}, **ASKED}
    assert result["completion"]["hasMore"] is False


@EVERY_WAY
async def test_a_templates_argument_is_completed_by_its_child(way: Way, client: RawClient) -> None:
    ref = {"type": "ref/resource", "uri": f"note://{way.server}//{{id}}"}
    (seen,) = (await client.result("completion/complete", {"ref": ref, **ASKED}))["completion"]["values"]
    assert json.loads(seen) == {"ref": {**ref, "uri": "note:///{id}"}, **ASKED}


@ways(lambda way: way.server == "old")
@pytest.mark.parametrize(
    "ref",
    [
        None,
        "play",
        {"type": "ref/prompt"},
        {"type": "ref/prompt", "name": "old:no-such"},
        {"type": "ref/resource"},
        {"type": "ref/resource", "uri": "note://nobody//x"},
    ],
)
async def test_what_no_child_can_complete_is_refused(way: Way, client: RawClient, ref: object) -> None:
    assert (await client.error("completion/complete", {"ref": ref, **ASKED}))["code"] == -32602
