"""Credentials that end while a request is answered: what is open ends with them, over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from fastmcp.server.auth import AuthProvider
from support.harness import PATIENCE, config, lean, talking, timed, until
from support.memory import QUICK, build_aggregator, scripted
from support.serving import Served, served
from support.tokens import AUDIENCE, ISSUER, PAIR, signed
from support.wire_http import HttpClient
from support.wire_sse import SseClient

from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.access.keys import ApiKey, new_key
from fastmcp_aggregator.access.keys_file import FollowedKeys, read_keys, write_keys
from fastmcp_aggregator.auth.verifiers import KeyVerifier, auth_from_settings
from fastmcp_aggregator.groups import Group
from fastmcp_aggregator.settings.model import load_settings

CHANGES = {"notifications": {"toolsListChanged": True}}
HOLD = {"name": "a:hold"}


class Hub:
    """An aggregator over HTTP, with a server `a` in two groups."""

    def __init__(self, app: Aggregator, front: Served, keys: Path) -> None:
        self.app = app
        self.origin = front.origin
        self._front = front
        self._keys = keys

    async def connect(self, credentials: str, *, group: str = "red", **about: Any) -> HttpClient:
        return await self._front.connect(group, headers={"Authorization": f"Bearer {credentials}"}, **about)

    async def connect_sse(self, credentials: str) -> SseClient:
        return await self._front.connect_sse("red", headers={"Authorization": f"Bearer {credentials}"})

    def change(self, to: Callable[[ApiKey], ApiKey | None]) -> None:
        """Change every key of the file; None takes it out."""
        changed = [to(key) for key in read_keys(self._keys)]
        write_keys(self._keys, [key for key in changed if key is not None])

    def revoke(self, name: str) -> None:
        self.change(lambda key: None if key.name == name else key)

    def spoil(self) -> None:
        self._keys.write_text("{")


@asynccontextmanager
async def hub(
    auth: AuthProvider,
    folder: Path,
    *,
    server: dict[str, Any] | None = None,
    wall_clock: Callable[[], float] = time.time,
    expiry_look: float = 60.0,
    **settings: Any,
) -> AsyncIterator[Hub]:
    groups = {name: {"servers": ["a"]} for name in ("red", "blue")}
    app = build_aggregator(config(a=server or lean()), groups=groups, auth=auth, **settings)
    timed(app, replace(QUICK, wall_clock=wall_clock, expiry_look=expiry_look))
    async with served(app) as front:
        yield Hub(app, front, folder / "keys.json")


def keys_for(folder: Path, *names: str, look_interval: float = 0.01) -> tuple[AuthProvider, dict[str, str]]:
    made = {name: new_key(name, ["red", "blue"], None) for name in names}
    write_keys(folder / "keys.json", [kept for _, kept in made.values()])
    keys = FollowedKeys(folder / "keys.json", look_interval=look_interval)
    return KeyVerifier(keys), {name: key for name, (key, _) in made.items()}


def provider(**settings: str) -> AuthProvider:
    auth = auth_from_settings(load_settings(**settings))
    assert auth is not None
    return auth


def token(*, seconds: int) -> str:
    payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": int(time.time()) + seconds}
    return signed(payload)


async def ended(*streams: Any) -> None:
    """Wait until the server has ended all of these in good order."""
    await asyncio.wait_for(asyncio.gather(*streams), PATIENCE)


def json_call(origin: str, key: str) -> asyncio.Task[httpx2.Response]:
    async def call() -> httpx2.Response:
        async with httpx2.AsyncClient(timeout=None, trust_env=False, headers={"X-API-Key": key}) as http:
            url = f"{origin}/groups/red/mcp/tools/call"
            return await http.post(url, json=HOLD)

    return asyncio.create_task(call())


async def test_everything_that_a_revoked_key_has_open_ends_and_nothing_else(tmp_path: Path) -> None:
    auth, keys = keys_for(tmp_path, "ann", "ben")
    async with hub(auth, tmp_path, resumable="always") as opened:
        of_ben = await opened.connect(keys["ben"])
        legacy, modern = await opened.connect(keys["ann"]), await opened.connect(keys["ann"], modern=True)
        old = await opened.connect_sse(keys["ann"])
        listening = modern.begin("subscriptions/listen", CHANGES)[0]
        await modern.heard("notifications/subscriptions/acknowledged")
        calls = [(client, client.begin("tools/call", HOLD)[0]) for client in (legacy, modern)]
        by_json = json_call(opened.origin, keys["ann"])
        bens, answer = of_ben.begin("tools/call", HOLD)
        await until(lambda: opened.app.health()["a"].in_flight == 4)
        opened.revoke("ann")
        await ended(
            legacy.ended(),
            modern.ended(listening),
            until(lambda: old.is_ended),
            *(client.ended(call) for client, call in calls),
            by_json,
        )
        assert by_json.result().status_code == 401
        assert [client.statuses[call] for client, call in calls] == [200, 401]
        await until(lambda: opened.app.health()["a"].in_flight == 1)
        await of_ben.call("a:release")
        assert "result" in await answer
        assert not of_ben._posts[None, "listen"].done()
        assert bens


async def test_a_key_that_has_lost_a_group_keeps_what_it_has_open_in_the_others(tmp_path: Path) -> None:
    auth, keys = keys_for(tmp_path, "ann")
    audit = tmp_path / "audit.jsonl"
    async with hub(auth, tmp_path, audit=str(audit)) as opened:
        red, blue = [await opened.connect(keys["ann"], group=group) for group in ("red", "blue")]
        opened.change(lambda key: ApiKey(key.id, key.name, key.sha256, frozenset({"blue"}), key.created))
        await ended(red.ended())
        assert await blue.call("a:echo")
        assert not blue._posts[None, "listen"].done()
        denied = await until(lambda: [line for line in audit.read_text().splitlines() if '"denied"' in line])
        assert "the key was revoked, or has lost the group" in denied[0]
        assert len(denied) == 1


ASK = {"name": "a:play", "arguments": {"script": [{"ask": {"a": {"method": "roots/list"}}}]}}

ASKABLE: dict[str, Any] = {"modern": True, "capabilities": {"roots": {}}}


async def test_a_call_that_waits_for_answers_ends_with_its_key_and_no_sooner(tmp_path: Path) -> None:
    auth, keys = keys_for(tmp_path, "ann", "ben")
    async with hub(auth, tmp_path, server=talking()) as served:
        ann, ben = await served.connect(keys["ann"], **ASKABLE), await served.connect(keys["ben"])
        assert (await ann.result("tools/call", ASK))["resultType"] == "input_required"
        served.revoke("ben")
        await ben.ended()
        assert served.app.health()["a"].in_flight == 1
        served.revoke("ann")
        await ended(until(lambda: served.app.health()["a"].in_flight == 0))


async def test_a_call_that_waits_for_answers_ends_when_its_key_loses_the_group(tmp_path: Path) -> None:
    auth, keys = keys_for(tmp_path, "ann")
    async with hub(auth, tmp_path, server=talking()) as served:
        red, blue = await served.connect(keys["ann"], **ASKABLE), await served.connect(keys["ann"], group="blue")
        asked = await red.result("tools/call", ASK)
        served.change(lambda key: replace(key, groups=frozenset(["red"])))
        await blue.ended()
        assert served.app.health()["a"].in_flight == 1
        served.change(lambda key: replace(key, groups=frozenset(["blue"])))
        await ended(until(lambda: served.app.health()["a"].in_flight == 0))
        served.change(lambda key: replace(key, groups=frozenset(["red"])))
        again = await red.error("tools/call", {**ASK, **red.answers(asked)})
        assert again["message"].startswith("requestState: the call that it continues is over")


async def test_while_the_file_is_wrong_nothing_is_open(tmp_path: Path) -> None:
    auth, keys = keys_for(tmp_path, "ann")
    async with hub(auth, tmp_path) as opened:
        ann = await opened.connect(keys["ann"])
        opened.spoil()
        await ended(ann.ended())


async def test_a_key_beside_tokens_of_a_provider_is_followed_like_one_alone(tmp_path: Path) -> None:
    _, keys = keys_for(tmp_path, "ann")
    (tmp_path / "provider.pem").write_text(PAIR.public_key)
    tokens = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_public_key_file": str(tmp_path / "provider.pem")}
    async with hub(provider(keys_file=str(tmp_path / "keys.json"), **tokens), tmp_path) as opened:
        ann, carol = await opened.connect(keys["ann"]), await opened.connect(token(seconds=60))
        opened.revoke("ann")
        await ended(ann.ended())
        assert await carol.call("a:echo")
        assert not carol._posts[None, "listen"].done()


async def test_a_dashboard_that_waits_for_news_gets_none_with_fewer_groups_than_it_began_with(tmp_path: Path) -> None:
    auth, keys = keys_for(tmp_path, "ann")
    async with hub(auth, tmp_path) as opened, httpx2.AsyncClient(timeout=None, trust_env=False) as http:
        url, headers = f"{opened.origin}/dashboard/state", {"X-API-Key": keys["ann"]}
        await opened.app._directory.ready()
        followed = cast("KeyVerifier", auth).keys
        etag = (await http.get(url, headers=headers)).headers["etag"]
        waiting = asyncio.create_task(http.get(url, headers={**headers, "If-None-Match": etag, "Prefer": "wait=30"}))
        await until(lambda: followed._watching)
        opened.change(lambda key: ApiKey(key.id, key.name, key.sha256, frozenset({"blue"}), key.created))
        await ended(waiting)
        assert waiting.result().status_code == 401


async def test_the_end_of_a_stream_is_seen_with_a_request_of_somebody_else_already(tmp_path: Path) -> None:
    auth, keys = keys_for(tmp_path, "ann", "ben", look_interval=3600)
    async with hub(auth, tmp_path) as opened:
        ann, ben = [await opened.connect(keys[name]) for name in ("ann", "ben")]
        opened.revoke("ann")
        await ben.call("a:echo")
        await ended(ann.ended())


async def test_when_a_token_runs_out_its_streams_end_and_its_calls_are_answered(tmp_path: Path) -> None:
    later = Later()
    async with hub(tokens_alone(tmp_path), tmp_path, wall_clock=later) as opened:
        carol = await opened.connect(token(seconds=3600))
        # Its last moment: what begins now ends as soon as it may.
        later.seconds = 3600
        await carol.listen_again({})
        _, answer = carol.begin("tools/call", HOLD)
        await until(lambda: opened.app.health()["a"].in_flight == 1)
        await ended(carol.ended())
        later.seconds = 0
        await carol.listen_again({})
        await carol.call("a:release")
        assert "result" in await answer


class Later:
    """The clock of what ends streams, which can be put forward."""

    seconds = 0.0

    def __call__(self) -> float:
        return time.time() + self.seconds


def tokens_alone(folder: Path) -> AuthProvider:
    (folder / "provider.pem").write_text(PAIR.public_key)
    return provider(jwt_issuer=ISSUER, jwt_audience=AUDIENCE, jwt_public_key_file=str(folder / "provider.pem"))


async def test_when_a_token_runs_out_every_kind_of_stream_that_it_has_open_ends(tmp_path: Path) -> None:
    later = Later()
    async with (
        hub(tokens_alone(tmp_path), tmp_path, wall_clock=later, expiry_look=0.01) as opened,
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        modern = await opened.connect(token(seconds=3600), modern=True)
        url, headers = f"{opened.origin}/dashboard/state", {"authorization": f"Bearer {token(seconds=3600)}"}
        etag = (await http.get(url, headers=headers)).headers["etag"]
        listening = modern.begin("subscriptions/listen", CHANGES)[0]
        old = await opened.connect_sse(token(seconds=3600))
        waiting = asyncio.create_task(http.get(url, headers={**headers, "If-None-Match": etag, "Prefer": "wait=30"}))
        later.seconds = 3602
        await ended(modern.ended(listening), until(lambda: old.is_ended), waiting)
        assert waiting.result().status_code == 401


async def test_a_stream_ends_with_its_token_though_the_clock_was_put_forward(tmp_path: Path) -> None:
    later = Later()
    async with hub(tokens_alone(tmp_path), tmp_path, wall_clock=later, expiry_look=0.01) as opened:
        old = await opened.connect_sse(token(seconds=3600))
        later.seconds = 3602  # as on a machine that was suspended
        await ended(until(lambda: old.is_ended))


async def test_a_call_does_not_outlive_its_token_for_longer_than_a_call_may_be_silent(tmp_path: Path) -> None:
    later = Later()
    async with hub(tokens_alone(tmp_path), tmp_path, wall_clock=later) as opened:
        carol = await opened.connect(token(seconds=3600))
        later.seconds = 3600 + 300
        number, _ = carol.begin("tools/call", HOLD)
        await ended(carol.ended(number))
        await until(lambda: opened.app.health()["a"].in_flight == 0)


@pytest.mark.parametrize("modern", [False, True])
async def test_who_has_subscribed_hears_nothing_more_of_a_server_that_has_left_the_group(
    modern: bool, tmp_path: Path
) -> None:
    groups = {"red": {"servers": ["a", "b"]}}
    app = build_aggregator(config(a=talking(), b=talking()), groups=groups)
    scripts = scripted(app)
    async with served(app) as front:
        client = await front.connect("red", modern=modern)
        uris = ["note://a//a", "note://b//a"]
        if modern:
            client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
            await client.heard("notifications/subscriptions/acknowledged")
        else:
            for uri in uris:
                await client.result("resources/subscribe", {"uri": uri})
        app._backend.regroup(lambda group_id: Group(group_id, servers=("b",)))
        for key in ("a", "b"):
            scripts[key].life.child.notify("notifications/resources/updated", {"uri": "note:///a"})
        heard = await client.heard("notifications/resources/updated")
        assert heard["params"]["uri"] == "note://b//a"
        assert "note://a//a" not in repr(client.notifications)


@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        (lambda path: write_keys(path, []), True),
        (lambda path: write_keys(path, read_keys(path)[:1]), False),
        (lambda path: None, False),
    ],
    ids=["of its key", "of another", "none"],
)
async def test_who_watches_a_key_is_told_of_its_changes(
    tmp_path: Path, change: Callable[[Path], None], is_told: bool
) -> None:
    keys_for(tmp_path, "ann", "ben")
    ann, _ = read_keys(tmp_path / "keys.json")
    keys, told = FollowedKeys(tmp_path / "keys.json", look_interval=0), asyncio.Event()
    with keys.watched(ann, told.set):
        change(tmp_path / "keys.json")
        for _ in range(10):
            await asyncio.sleep(0)
        assert told.is_set() == is_told
    for _ in range(10):
        await asyncio.sleep(0)
    assert keys._looks_in is None


async def test_one_look_is_due_for_all_who_watch_a_key_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys_for(tmp_path, "ann")
    (ann,) = read_keys(tmp_path / "keys.json")
    keys = FollowedKeys(tmp_path / "keys.json")
    due: list[float] = []
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "call_later", lambda delay, *_: due.append(delay))
    for _ in range(100):
        with keys.watched(ann, print):
            pass
    assert due == [1.0]


@pytest.mark.parametrize(
    ("had", "has", "lets_in"), [(None, 5, False), (5, 3, False), (5, 5, True), (5, 300, True), (5, None, True)]
)
async def test_a_key_that_is_to_expire_sooner_ends_what_it_has_open(
    tmp_path: Path, had: int | None, has: int | None, lets_in: bool
) -> None:
    begin = datetime.now(UTC)
    before, after = (None if days is None else begin + timedelta(days=days) for days in (had, has))
    path = tmp_path / "keys.json"
    key, kept = new_key("ann", None, before)
    write_keys(path, [kept])
    auth: Any = provider(keys_file=str(path))
    found = await auth.verify_token(key)
    write_keys(path, [replace(kept, expires=after, groups=frozenset({"red"}))])
    await auth.verify_token("another")
    assert found.lets_in(["red"]) == lets_in


@pytest.mark.parametrize(
    ("had", "has", "asked", "lets_in"),
    [
        (None, None, None, True),
        (None, None, ["red"], True),
        (None, {"red"}, None, False),
        (None, {"red"}, ["red"], True),
        (None, {"red"}, ["blue"], False),
        ({"red"}, None, None, True),
        ({"red"}, {"red", "blue"}, None, True),
        ({"red", "blue"}, {"red"}, None, False),
        ({"red"}, set(), ["red"], False),
    ],
)
async def test_a_token_of_a_key_lets_in_as_far_as_the_key_still_does(
    tmp_path: Path, had: Iterable[str] | None, has: Iterable[str] | None, asked: list[str] | None, lets_in: bool
) -> None:
    path = tmp_path / "keys.json"
    key, kept = new_key("ann", had, None)
    write_keys(path, [kept])
    auth: Any = provider(keys_file=str(path))
    found = await auth.verify_token(key)
    assert await auth.verify_token(key) is found
    groups = None if has is None else frozenset(has)
    write_keys(path, [ApiKey(kept.id, kept.name, kept.sha256, groups, kept.created)])
    await auth.verify_token("another")
    assert found.lets_in(asked) == lets_in
    write_keys(path, [ApiKey(kept.id, kept.name, "0" * 64, None, kept.created)])
    await auth.verify_token("another")
    assert not found.lets_in(asked)


async def test_a_key_that_has_become_somebody_elses_ends_what_it_has_open(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key, kept = new_key("ann", None, None)
    write_keys(path, [kept])
    auth: Any = provider(keys_file=str(path))
    found = await auth.verify_token(key)
    write_keys(path, [replace(kept, name="bob")])
    assert (await auth.verify_token(key)).client_id == "key:bob"
    assert not found.lets_in(None)
