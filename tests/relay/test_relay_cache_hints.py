"""For how long lists may be kept: as the children say, and by the one that asked alone, since names depend on that; and
for whom contents may be.
"""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from support.harness import config, connected, lean, talking
from support.memory import build_aggregator
from support.serving import served
from support.wire import Message

pytestmark = pytest.mark.asyncio(loop_scope="session")


def child(ttl: Any) -> Message:
    return talking(era="modern", hints={"tools": {"ttlMs": ttl, "cacheScope": "public"}})


async def hints(document: Message, *, modern: bool = True, method: str = "tools/list", **settings: Any) -> Message:
    """The hints in a list."""
    async with build_aggregator(document, **settings) as app, connected(app, modern=modern) as client:
        result = await client.result(method)
        return {key: result[key] for key in ("ttlMs", "cacheScope") if key in result}


async def test_a_list_may_be_kept_as_long_as_every_child_allows() -> None:
    assert await hints(config(a=child(500))) == {"ttlMs": 500, "cacheScope": "private"}
    assert await hints(config(a=child(500), b=child(300))) == {"ttlMs": 300, "cacheScope": "private"}
    assert await hints(config(a=child(300), b=child(500))) == {"ttlMs": 300, "cacheScope": "private"}


@pytest.mark.parametrize("separator", ["auto", ":", "__", ".", "_"])
async def test_a_list_is_for_the_one_that_asked_whatever_the_children_say(separator: str) -> None:
    """Under every setting there are clients that are shown other names."""
    assert (await hints(config(a=child(500)), separator=separator))["cacheScope"] == "private"


@pytest.mark.parametrize(
    "silent",
    [talking(), talking(era="modern"), child(-5), child("x"), child(None), child(True)],
    ids=["legacy", "says 0", "says less than 0", "says x", "says nothing", "says yes"],
)
async def test_a_child_that_allows_nothing_has_the_whole_list_not_kept(silent: Message) -> None:
    assert (await hints(config(a=child(500), b=silent)))["ttlMs"] == 0


async def test_a_child_that_has_none_of_a_kind_does_not_count() -> None:
    without_tools = talking(era="modern", capabilities={"prompts": {}})
    assert (await hints(config(a=child(500), b=without_tools)))["ttlMs"] == 500


async def test_a_failed_child_does_not_count() -> None:
    assert (await hints(config(a=child(500), b=lean(exit_at_start=1)), strict=False))["ttlMs"] == 500


async def test_each_kind_has_its_own_hints() -> None:
    for method in ("prompts/list", "resources/list", "resources/templates/list"):
        assert await hints(config(a=child(500)), method=method) == {"ttlMs": 0, "cacheScope": "private"}


async def test_a_legacy_client_is_given_none() -> None:
    assert await hints(config(a=child(500)), modern=False) == {}


@pytest.mark.parametrize("fast_path", [True, False])
@pytest.mark.parametrize(("who", "scope"), [("alice", "private"), (None, "public")])
async def test_what_a_child_would_have_kept_for_everybody_is_for_the_caller_who_may_use_it(
    who: str | None, scope: str, fast_path: bool
) -> None:
    read = {"contents": [], "ttlMs": 500, "cacheScope": "public"}
    document = config(
        a=lean(era="modern", capabilities={"tools": {}, "resources": {}}, results={"resources/read": read})
    )
    auth = None if who is None else StaticTokenVerifier({who: {"client_id": who, "scopes": []}})
    headers = {} if who is None else {"Authorization": f"Bearer {who}"}
    async with build_aggregator(document, auth=auth, fast_path=fast_path) as app, served(app) as front:
        client = await front.connect(modern=True, headers=headers)
        result = await client.result("resources/read", {"uri": "note://a//x"})
        assert (result["ttlMs"], result["cacheScope"]) == (500, scope)
        assert bool(app.backend.path_counts.answered) == fast_path
