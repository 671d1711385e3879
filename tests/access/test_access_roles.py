"""Roles: what a key or a token is for, besides its groups."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.credentials import Credentials, bearer
from support.harness import config, lean
from support.memory import build_aggregator

from fastmcp_aggregator.access.keys import new_key
from fastmcp_aggregator.access.keys_file import FollowedKeys, read_keys, write_keys
from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.access.roles import ROLES, with_implied
from fastmcp_aggregator.auth.verifiers import KeyToken, KeyVerifier
from fastmcp_aggregator.errors import ConfigError

GROUPS = {"web": {"servers": ["a"]}}
CALL = {"name": "a:echo", "arguments": {}}


@asynccontextmanager
async def hub(auth: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = build_aggregator(config(a=lean(), b=lean()), groups=GROUPS, auth=auth, metrics=True)
    asgi = app.http_app()
    async with (
        asgi.router.lifespan_context(asgi),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(asgi), base_url="http://localhost") as http,
    ):
        yield http


def keys(folder: Path, **roles: Iterable[str]) -> tuple[Any, dict[str, dict[str, str]]]:
    """An auth provider, and the headers with a key for each name, which has these roles."""
    credentials = Credentials(folder, dict.fromkeys(roles), {name: set(of_key) for name, of_key in roles.items()})
    return credentials.auth, {name: credentials.of(name) for name in roles}


async def allowed(http: httpx2.AsyncClient, headers: dict[str, str]) -> set[str]:
    """What a caller may do."""
    called = (await http.post("/groups/web/mcp/tools/call", json=CALL, headers=headers)).status_code == 200
    read = (await http.get("/metrics", headers=headers)).status_code == 200
    seen = "shares" in (await http.get("/status", headers=headers)).json()
    view = (await http.get("/dashboard/state", headers=headers)).json()
    assert view["viewer"]["sees_all"] is seen
    assert {"calls": called, "metrics": read, "sees": seen}["calls"] == ("call" in view["viewer"]["roles"])
    return {what for what, may in {"call": called, "metrics": read, "observe": seen}.items() if may}


def test_all_requests_of_a_caller_are_of_one_holder_whatever_its_keys_allow() -> None:
    ann = Principal("key:ann", frozenset({"web"}))
    assert ann.bare == Principal("key:ann")
    assert ann.bare is Principal("key:ann", roles=with_implied({"operate"})).bare
    assert ann.bare != Principal("key:bob").bare


async def test_a_key_may_do_what_its_roles_say_and_no_more(tmp_path: Path) -> None:
    auth, headers = keys(tmp_path, usual={"call"}, scraper={"metrics"}, viewer={"observe"}, chief={"operate", "call"})
    async with hub(auth) as http:
        found = {name: await allowed(http, of_key) for name, of_key in headers.items()}
    assert found == {
        "usual": {"call"},
        "scraper": {"metrics"},
        "viewer": {"metrics", "observe"},
        "chief": {"call", "metrics", "observe"},
    }


async def test_a_key_that_is_not_for_calls_learns_nothing_of_groups(tmp_path: Path) -> None:
    auth, headers = keys(tmp_path, scraper={"metrics"})
    async with hub(auth) as http:
        places = ["/mcp", "/mcp/tools/list", "/groups/web/mcp", "/groups/none/mcp", "/groups/none/mcp/tools/call"]
        answers = [await http.post(place, json=CALL, headers=headers["scraper"]) for place in places]
        assert {(answer.status_code, answer.text) for answer in answers} == {
            (403, "Forbidden: you lack the role `call`")
        }
        assert (await http.get("/groups", headers=headers["scraper"])).json() == []
        assert (await http.get("/status", headers=headers["scraper"])).json()["servers"] == {}


@pytest.mark.parametrize(
    ("claim", "roles"),
    [
        (None, {"call"}),
        (["other"], {"call"}),
        (["metrics", "other"], {"metrics"}),
        ("call observe", {"call", "metrics", "observe"}),
        ("x\u00a0operate", {"call"}),
        ({"not": "a list"}, {"call"}),
    ],
)
async def test_a_claim_gives_roles(tmp_path: Path, claim: Any, roles: set[str]) -> None:
    credentials = Credentials(tmp_path, {})
    credentials.settings["jwt_roles_claim"] = "roles"
    async with hub(credentials.auth) as http:
        assert await allowed(http, bearer(groups=["web"], roles=claim)) == roles


def test_an_operator_may_see_what_it_operates_and_calls_nothing_unless_it_may() -> None:
    assert with_implied({"operate"}) == set(ROLES) - {"call"}


async def test_a_key_that_loses_a_role_ends_what_it_has_open(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key, kept = new_key("ann", None, None, {"call", "operate"})
    write_keys(file, [kept])
    followed = FollowedKeys(file)
    token = await KeyVerifier(followed).verify_token(key)
    assert isinstance(token, KeyToken)
    assert token.lets_in(None)
    document = json.loads(file.read_text())
    document["keys"][0]["roles"] = ["call", "observe"]
    file.write_text(json.dumps(document))
    followed.find(key)
    assert not token.lets_in(None)


def test_roles_are_kept_in_the_file_and_those_that_are_none_are_told(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    write_keys(file, [new_key("a", None, None)[1], new_key("b", None, None, {"metrics"})[1]])
    assert [key.roles for key in read_keys(file)] == [{"call"}, {"metrics"}]
    document = json.loads(file.read_text())
    assert "roles" not in document["keys"][0]
    for wrong in (["root"], [], "call", [1]):
        document["keys"][1]["roles"] = wrong
        file.write_text(json.dumps(document))
        with pytest.raises(ConfigError, match="call, metrics, observe, operate"):
            read_keys(file)
