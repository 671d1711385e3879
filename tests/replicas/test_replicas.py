"""Several hubs with one Redis: what each finds reaches the others, and a client may come back to any."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from support.harness import PATIENCE, config, lean, running, talking, until
from support.processes import are_gone
from support.redis_replica import quick_replica
from support.redis_server import RedisServer, needs_redis
from support.serving import Served, served
from support.talking_server import TalkingServer, talking_server
from support.wire import EVERYTHING, Message, text_of, until_answered
from support.wire_http import HttpClient

from fastmcp_aggregator import Aggregator, SharedStateError, build_aggregator
from fastmcp_aggregator.front.http.resume.kept_sessions import SESSION_LIFETIME
from fastmcp_aggregator.relay import pending_calls
from fastmcp_aggregator.replicas.redis_connection import RedisTimings, connect
from fastmcp_aggregator.replicas.redis_peers import RedisPeers
from fastmcp_aggregator.replicas.wire import MESSAGE_SIZE_LIMIT

pytestmark = [needs_redis, pytest.mark.replicas]

ROOTS = {"method": "roots/list"}
OVER = "requestState: the call that it continues is over; call again without it"
OF_ANOTHER = "the call belongs to another caller, or to another request"
NOTE = "note://remote//a"
SECRET = "a secret of thirty-two characters"


@pytest_asyncio.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    server = RedisServer(tmp_path, password="of-redis", timeout=PATIENCE)
    await server.start()
    yield server
    server.stop()


class Hubs:
    """Two hubs of one config."""

    def __init__(self, stack: AsyncExitStack, redis: RedisServer) -> None:
        self._stack = stack
        self._redis = redis
        self.apps: list[Aggregator] = []
        self._fronts: list[Served] = []
        self.grace = 0.05

    async def start(self, document: Any, **options: Any) -> None:
        for _ in range(2):
            self._fronts.append(await self.one_more(document, **options))

    async def one_more(self, document: Any, **options: Any) -> Served:
        """Another replica."""
        app = quick_replica(build_aggregator(document, redis_url=self._redis.url, **options), grace=self.grace)
        self.apps.append(app)
        return await self._stack.enter_async_context(served(app))

    async def clients(self, **about: Any) -> tuple[HttpClient, HttpClient]:
        """One of each."""
        one, other = [await front.connect(**about) for front in self._fronts]
        return one, other


@pytest_asyncio.fixture
async def hubs(redis: RedisServer) -> AsyncIterator[Hubs]:
    async with AsyncExitStack() as stack:
        yield Hubs(stack, redis)


@pytest_asyncio.fixture
async def remote() -> AsyncIterator[TalkingServer]:
    async with talking_server() as server:
        yield server


def play(*script: Message) -> Message:
    return {"name": "old:play", "arguments": {"script": script}}


def with_answers(params: Message, round_: Message, uri: str = "file:///mine") -> Message:
    answers = {name: {"roots": [{"uri": uri}]} for name in round_["inputRequests"]}
    return {**params, "requestState": round_["requestState"], "inputResponses": answers}


# Clients that come back to another replica.


async def test_a_client_comes_back_to_any_replica_and_its_call_goes_on_where_it_began(hubs: Hubs) -> None:
    await hubs.start(config(old=talking()))
    one, other = await hubs.clients(modern=True, capabilities=EVERYTHING)
    params = play(
        {"ask": {"a": ROOTS}},
        {"say": "notifications/message", "params": {"level": "info", "data": "between"}},
        {"progress": [1, 2, "half"]},
        {"ask": {"b": ROOTS}},
    )
    params["_meta"] = {"progressToken": 7, "io.modelcontextprotocol/logLevel": "info"}
    first = await one.result("tools/call", params)
    second = await other.result("tools/call", with_answers(params, first))
    assert second["resultType"] == "input_required"
    assert [said["method"] for said in other.notifications] == ["notifications/message", "notifications/progress"]
    assert other.notifications[1]["params"]["progressToken"] == 7
    third = await one.result("tools/call", with_answers(params, second))
    assert [answer["roots"] for answer in flat(text_of(third))] == [[{"uri": "file:///mine"}]] * 2


def flat(brought: Any) -> list[Any]:
    return [answer for answers in brought for answer in answers.values()]


async def test_a_state_is_good_once_and_for_the_same_request_at_another_replica_too(hubs: Hubs) -> None:
    await hubs.start(config(old=talking()))
    one, other = await hubs.clients(modern=True, capabilities=EVERYTHING)
    params = play({"ask": {"a": ROOTS}})
    first = await one.result("tools/call", params)
    another = with_answers(play({"ask": {"b": ROOTS}}), first)
    assert (await other.error("tools/call", another))["message"] == OVER
    again = with_answers(params, first)
    assert (await other.result("tools/call", again))["resultType"] == "complete"
    assert (await other.error("tools/call", again))["message"] == OVER
    assert (await one.error("tools/call", again))["message"] == OVER


async def test_a_state_is_good_for_the_same_principal_only_at_another_replica_too(hubs: Hubs, tmp_path: Path) -> None:
    tokens = {name: {"client_id": name, "scopes": []} for name in ("alice", "mallory")}
    audit = tmp_path / "audit.jsonl"
    await hubs.start(config(old=talking()), auth=StaticTokenVerifier(tokens), audit=str(audit))
    about: dict[str, Any] = {"modern": True, "capabilities": EVERYTHING}
    alices = await hubs.clients(**about, headers={"Authorization": "Bearer alice"})
    mallorys = await hubs.clients(**about, headers={"Authorization": "Bearer mallory"})
    params = play({"ask": {"a": ROOTS}})
    first = await alices[0].result("tools/call", params)
    assert (await mallorys[1].error("tools/call", with_answers(params, first)))["message"] == OVER
    assert (await alices[1].result("tools/call", with_answers(params, first)))["resultType"] == "complete"
    await until(lambda: audit.read_text().count("\n") == 3)
    denied = [line for line in map(json.loads, audit.read_text().splitlines()) if line["outcome"] == "denied"]
    assert [(line["principal"], line["reason"]) for line in denied] == [("client:mallory", OF_ANOTHER)]


async def test_errors_of_the_server_and_of_its_loss_come_from_another_replica_as_they_are(hubs: Hubs) -> None:
    await hubs.start(config(old=talking()))
    one, other = await hubs.clients(modern=True, capabilities=EVERYTHING)
    error = {"code": -32077, "message": "no", "data": {"why": [1]}}
    params = play({"ask": {"a": ROOTS}}, {"fail": error})
    first = await one.result("tools/call", params)
    assert await other.error("tools/call", with_answers(params, first)) == error
    params = play({"ask": {"a": ROOTS}}, {"wait": "for ever"})
    first = await one.result("tools/call", params)
    waiting = asyncio.ensure_future(other.error("tools/call", with_answers(params, first)))
    await one.report("old", lambda report: report["playing"])
    hubs.apps[0].children["old"].kill()
    lost = await waiting
    assert lost["message"].startswith("server 'old': it was ended by signal SIGKILL")


async def test_a_client_that_leaves_another_replica_ends_its_call(hubs: Hubs) -> None:
    await hubs.start(config(old=talking()))
    one, other = await hubs.clients(modern=True, capabilities=EVERYTHING)
    params = play({"ask": {"a": ROOTS}}, {"wait": "for ever"})
    first = await one.result("tools/call", params)
    request_id, _ = other.begin("tools/call", with_answers(params, first))
    await until(lambda: hubs.apps[0]._backend.runtime.rounds._pending._pending == {})
    other.hang_up(request_id)
    await one.report("old", lambda report: not report["playing"])


async def test_a_result_that_is_too_large_to_be_passed_on_is_an_error(hubs: Hubs) -> None:
    await hubs.start(config(old=talking()))
    one, other = await hubs.clients(modern=True, capabilities=EVERYTHING)
    params = play({"ask": {"a": ROOTS}}, {"ask": {"b": ROOTS}})
    first = await one.result("tools/call", params)
    too_large = "are too large to be passed between replicas"
    six_bytes = "é"  # between replicas, and two in the body of a request, which may have 4 MiB
    refused = await other.error("tools/call", with_answers(params, first, six_bytes * (MESSAGE_SIZE_LIMIT // 6)))
    assert refused["message"] == f"the answers of this call {too_large}"
    second = await one.result("tools/call", with_answers(params, first, six_bytes * (MESSAGE_SIZE_LIMIT // 11)))
    refused = await other.error("tools/call", with_answers(params, second, six_bytes * (MESSAGE_SIZE_LIMIT // 11)))
    assert refused["message"] == f"the result of this call {too_large}"


async def test_a_state_of_no_replica_is_over(hubs: Hubs) -> None:
    await hubs.start(config(old=talking()))
    one, _ = await hubs.clients(modern=True, capabilities=EVERYTHING)
    for state in ("held-0123456789abcdef.unknown", "held-all.unknown", "held-*.x", "held-x"):
        refused = await one.error("tools/call", {**play({"ask": {"a": ROOTS}}), "requestState": state})
        assert refused == {"code": -32602, "message": OVER}


async def test_a_replica_that_is_gone_took_its_calls_with_it(redis: RedisServer) -> None:
    document = config(old=talking())
    async with AsyncExitStack() as stack:
        app = build_aggregator(document, redis_url=redis.url)
        front = await stack.enter_async_context(served(app))
        client = await front.connect(modern=True, capabilities=EVERYTHING)
        params = play({"ask": {"a": ROOTS}})
        async with served(build_aggregator(document, redis_url=redis.url)) as other:
            dying = await other.connect(modern=True, capabilities=EVERYTHING)
            first = await dying.result("tools/call", params)
        assert (await client.error("tools/call", with_answers(params, first)))["message"] == OVER
        assert (await client.result("tools/call", params))["resultType"] == "input_required"


async def test_what_an_own_tool_gives_a_client_to_come_back_with_is_good_at_every_replica(hubs: Hubs) -> None:
    await hubs.start(config(a=lean()))
    one, other = (app._backend.request_states for app in hubs.apps)
    assert one.unseal(other.seal(b"mine")) == b"mine"
    assert [app._mcp_server.name for app in hubs.apps] == ["fastmcp-aggregator"] * 2


# What replicas tell each other.


async def test_lists_that_a_remote_server_tells_one_replica_of_are_listed_by_all_and_clients_told(
    hubs: Hubs, remote: TalkingServer
) -> None:
    await hubs.start(config(remote=remote.entry))
    one, other = await hubs.clients()
    listener = (await hubs.clients(modern=True))[1]
    assert {*await one.names()} == {*await other.names()} == {*await listener.names()}
    listener.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await listener.heard("notifications/subscriptions/acknowledged")
    for child in remote.children.values():
        child.tools.append(child.tool("new"))
    of_first(remote).play_outside({"changed": "tools"})
    for client in (one, other, listener):
        await client.heard("notifications/tools/list_changed")
        assert "remote:new" in await client.names()
    lists = remote.counts["tools/list"]
    assert lists == 4  # each replica once at its start, and once more


async def test_a_replica_whose_own_session_is_told_the_same_lists_once(hubs: Hubs, remote: TalkingServer) -> None:
    hubs.grace = 60
    await hubs.start(config(remote=remote.entry))
    clients = await hubs.clients()
    for client in clients:
        await client.names()
    before = remote.counts["tools/list"]
    one, other = (app._backend.changes for app in hubs.apps)
    for child in remote.children.values():
        child.play_outside({"changed": "tools"})
        await until(lambda: other._waiting or one._waiting)
    for client in clients:
        await client.heard("notifications/tools/list_changed")
    assert other._waiting == {}
    assert remote.counts["tools/list"] == before + 2


def of_first(remote: TalkingServer) -> Any:
    """The session of the first replica."""
    return next(iter(remote.children.values()))


async def fence(app: Aggregator) -> None:
    """Wait until nothing that another replica has heard waits any more."""
    await until(lambda: not app._backend.changes._waiting and not app._backend.peers._notices)  # type: ignore[attr-defined]


async def test_an_update_that_a_remote_server_tells_one_replica_of_reaches_the_followers_at_all(
    hubs: Hubs, remote: TalkingServer
) -> None:
    await hubs.start(config(remote=remote.entry))
    one, other = await hubs.clients()
    modern = (await hubs.clients(modern=True))[1]
    stranger = (await hubs.clients())[1]
    await other.result("resources/subscribe", {"uri": NOTE})
    modern.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": [NOTE]}})
    await modern.heard("notifications/subscriptions/acknowledged")
    await one.result("resources/subscribe", {"uri": NOTE})
    of_first(remote).play_outside({"update": "note:///a"})
    for client in (one, other, modern):
        assert (await client.heard("notifications/resources/updated"))["params"]["uri"] == NOTE
    assert stranger.notifications == []


async def test_servers_that_are_processes_say_nothing_to_other_replicas(hubs: Hubs) -> None:
    await hubs.start(config(mine=talking()))
    one, other = await hubs.clients()
    await one.names()
    await one.call("mine:add_tool", name="new")
    await one.heard("notifications/tools/list_changed")
    assert "mine:new" in await one.names()
    assert not hubs.apps[0]._backend.peers._notices  # type: ignore[attr-defined]
    assert "mine:new" not in await other.names()


@pytest.mark.parametrize("watches", [True, False])
async def test_a_config_that_one_replica_has_read_anew_is_read_by_all_that_watch_theirs(
    hubs: Hubs, tmp_path: Path, watches: bool
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config(a=lean())))
    await hubs.start(str(file), watch_config=watches)
    files = hubs.apps[1]._backend.files
    async with files.following(watch=False):  # what `run` does, but for the watching: it would see the change itself
        _, other = await hubs.clients()
        file.write_text(json.dumps(config(a=lean(), b=lean())))
        await hubs.apps[0].reload()
        if watches:
            await until_answered(other.names, lambda names: "b:echo" in names)
        else:
            await fence(hubs.apps[0])
            await hubs.apps[0].reload()  # nothing new, and nothing told
            assert "b:echo" not in await other.names()


async def test_a_config_that_is_as_it_was_is_not_told(hubs: Hubs, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config(a=lean())))
    await hubs.start(str(file))
    await hubs.apps[0].reload()
    assert not hubs.apps[0]._backend.peers._notices  # type: ignore[attr-defined]


# Redis that goes, and comes back.


async def test_without_redis_calls_go_on_and_with_it_what_was_missed_is_found(
    hubs: Hubs, redis: RedisServer, remote: TalkingServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await hubs.start(config(remote=remote.entry, old=talking()), rate_limit=600)
    one, other = await hubs.clients()
    asking = (await hubs.clients(modern=True, capabilities=EVERYTHING))[0]
    params = play({"ask": {"a": ROOTS}})
    before = await asking.result("tools/call", params)
    redis.stop()
    await until(lambda: caplog.text.count("replicas receive no notices of each other") == 2)
    assert (await one.call("old:echo", x=1))["arguments"] == {"x": 1}
    assert (await asking.result("tools/call", with_answers(params, before)))["resultType"] == "complete"
    alone = await asking.result("tools/call", params)
    assert (await asking.result("tools/call", with_answers(params, alone)))["resultType"] == "complete"
    for child in remote.children.values():
        child.tools.append(child.tool("new"))
    await asyncio.gather(one.names(), other.names())
    of_first(remote).play_outside({"changed": "tools"})
    await one.heard("notifications/tools/list_changed")
    assert "remote:new" not in await other.names()
    await redis.start()
    await other.heard("notifications/tools/list_changed")
    assert "remote:new" in await other.names()
    assert caplog.text.count("replicas receive no notices of each other") == 2
    assert "of-redis" not in caplog.text


async def test_more_notices_than_are_told_make_the_others_look_at_everything(hubs: Hubs, remote: TalkingServer) -> None:
    await hubs.start(config(remote=remote.entry))
    _, other = await hubs.clients()
    before = remote.counts["tools/list"]
    for number in range(1001):  # one more than a batch has, and than wait
        hubs.apps[0]._backend.changes.updated(hubs.apps[0].children["remote"], f"note:///{number}")
    await until(lambda: remote.counts["tools/list"] == before + 1)
    assert other.notifications == []


NONSENSE = [
    b"no JSON",
    b"[" * 100_000,
    b"[]",
    b'{"notices": []}',
    b'{"from": "x", "notices": [{"kind": "files"}]}',
    b'{"from": "0123456789abcdef", "notices": 7}',
    b'{"from": "0123456789abcdef", "notices": [7, {"kind": "tomorrow"}, {"kind": "lists", "server": "nobody"}]}',
    b'{"from": "0123456789abcdef", "ask": 1}',
    b'{"from": "0123456789abcdef", "ask": 1, "question": {}}',
    b'{"from": "0123456789abcdef", "reply": 1, "answer": {}}',
    b'{"from": "0123456789abcdef", "part": 1, "of": {}}',
    b'{"from": "0123456789abcdef", "cancel": 1}',
]


async def test_nonsense_on_the_channels_is_left_out(hubs: Hubs) -> None:
    await hubs.start(config(a=lean()))
    line = hubs.apps[0]._backend.peers._channel  # type: ignore[attr-defined]
    for said in NONSENSE:
        for channel in ("all", line.own_id):
            assert await line.redis.publish(line._channel(channel), said)
    hubs.apps[1]._backend.peers.publish({"kind": "lists", "server": "a"})
    await fence(hubs.apps[1])
    assert line.is_connected.is_set()
    one, _ = await hubs.clients(modern=True)
    assert (await one.call("a:echo"))["server"] == "lean"


# The start.


async def test_a_hub_whose_redis_cannot_be_reached_does_not_start(tmp_path: Path) -> None:
    record = tmp_path / "pids"
    app = build_aggregator(config(a=lean(record=str(record))), redis_url=f"unix://:s3cret@{tmp_path}/none.sock")
    with pytest.raises(SharedStateError) as caught:
        await app.run_http_async(port=0)
    assert str(caught.value) == (
        f"redis_url: Redis at {tmp_path}/none.sock cannot be reached (ConnectionError); "
        "start it, correct the address, or leave redis_url out to serve on one machine alone"
    )
    assert not record.exists()


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("redis://:s3cret@127.0.0.1:1/0", 3, "redis_url: Redis at 127.0.0.1:1 cannot be reached (ConnectionError); "),
        ("http://:s3cret@h", 2, "redis_url: must be like redis://HOST:PORT/0, "),
    ],
)
async def test_the_command_line_says_in_one_sentence_what_is_wrong_with_redis(
    url: str, code: int, said: str, tmp_path: Path
) -> None:
    record = tmp_path / "pids"
    (tmp_path / "config.json").write_text(json.dumps(config(a=lean(record=str(record)))))
    command = [sys.executable, "-m", "fastmcp_aggregator", "serve", str(tmp_path / "config.json")]
    environment = {**os.environ, "FASTMCP_AGGREGATOR_REDIS_URL": url}
    options = ["--transport", "http", "--port", "0"]
    async with running(*command, *options, handshake=False, env=environment) as hub:
        assert await hub.wait() == code
        words = hub.stderr.decode()
    assert said in words
    assert "Traceback" not in words
    assert "s3cret" not in words
    assert not record.exists() or are_gone(record)


@pytest.mark.parametrize("credentials", ["", ":wr0ng@"])
async def test_a_redis_that_refuses_the_password_is_told_without_it(redis: RedisServer, credentials: str) -> None:
    app = build_aggregator(config(a=lean()), redis_url=redis.url.replace(":of-redis@", credentials))
    with pytest.raises(SharedStateError) as caught:
        await app.run_http_async(port=0)
    assert "refuses the user or the password" in str(caught.value)
    assert "wr0ng" not in str(caught.value)


@pytest.mark.parametrize(
    ("rights", "said"), [(["~*", "&none"], "SUBSCRIBE"), (["~none", "&*"], "does not let the hub keep its key")]
)
async def test_a_redis_that_does_not_let_replicas_talk_or_keep_a_key_is_told(
    redis: RedisServer, rights: list[str], said: str
) -> None:
    admin = RedisPeers(redis.url)._channel.redis
    await admin.execute_command("ACL", "SETUSER", "mute", "on", ">of-mute", "+@all", *rights)
    await admin.aclose()
    app = build_aggregator(config(a=lean()), redis_url=redis.url.replace(":of-redis@", "mute:of-mute@"))
    timings = RedisTimings(subscribe_timeout=1.0 if said == "SUBSCRIBE" else PATIENCE)
    app = quick_replica(app, timings=timings)
    with pytest.raises(SharedStateError, match=said):
        await app.run_http_async(port=0)


async def of_hub(redis: RedisServer) -> str:
    """Its address for a user with the rights that are documented."""
    page = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
    [rights] = re.findall(r"ACL\) need\s+`([^`]+)`, keys `fastmcp-aggregator:\*`", page)
    admin = RedisPeers(redis.url)._channel.redis
    everything = ["~fastmcp-aggregator:*", "&fastmcp-aggregator:*", *rights.split()]
    await admin.execute_command("ACL", "SETUSER", "hub", "reset", "on", ">of-hub", *everything)
    await admin.aclose()
    return redis.url.replace(":of-redis@", "hub:of-hub@")


async def test_a_session_goes_on_at_other_replicas_that_have_the_same_key(hubs: Hubs, redis: RedisServer) -> None:
    redis.url = await of_hub(redis)
    await hubs.start(config(a=lean()), redis_key=SECRET)
    client, _ = await hubs.clients()
    await client.result("logging/setLevel", {"level": "info"})
    session = client._session
    client._url = hubs._fronts[1].url
    assert await client.call("a:pid")
    again = await hubs.one_more(config(a=lean()), redis_key=SECRET)
    client._url = again.url
    assert await client.call("a:pid")
    assert client._session == session
    without_key = await hubs.one_more(config(a=lean()))
    async with without_key.browser(**client._headers({})) as http:
        assert (await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})).status_code == 404
    admin = connect(redis.url)
    keys = [key async for key in admin.scan_iter("*session-*")]
    assert len(keys) == 2
    for key in keys:
        assert session["Mcp-Session-Id"].encode() not in key
        assert b"clientInfo" not in (await admin.get(key) or b"")
        assert 0 < await admin.ttl(key) <= SESSION_LIFETIME
    await admin.aclose()


@pytest.mark.parametrize("ended_at", [0, 1])
async def test_a_session_that_its_client_ends_at_one_replica_ends_at_all(
    hubs: Hubs, redis: RedisServer, ended_at: int
) -> None:
    await hubs.start(config(a=lean()), redis_key=SECRET)
    client, other = await hubs.clients()
    client._url = hubs._fronts[1].url
    assert await client.call("a:pid")

    async def status(replica: int, session: dict[str, str], method: str = "POST") -> int:
        ping = {"jsonrpc": "2.0", "id": 7, "method": "ping"} if method == "POST" else None
        async with hubs._fronts[replica].browser(**{**client._headers({}), **session}) as http:
            return (await http.request(method, "/mcp", json=ping)).status_code

    session = client._session
    assert [await status(replica, session) for replica in (0, 1)] == [200, 200]
    assert await status(ended_at, session, "DELETE") == 200
    assert await status(ended_at, session) == 404
    async with asyncio.timeout(PATIENCE):
        while await status(1 - ended_at, session) != 404:
            await asyncio.sleep(0)
    assert await status(1, other._session) == 200


async def test_a_user_with_the_rights_that_are_documented_is_enough(hubs: Hubs, redis: RedisServer) -> None:
    redis.url = await of_hub(redis)
    await hubs.start(config(old=talking()), rate_limit=1, rate_burst=2)
    one, other = await hubs.clients(modern=True, capabilities=EVERYTHING)
    params = play({"ask": {"a": ROOTS}})
    first = await one.result("tools/call", params)
    assert (await other.result("tools/call", with_answers(params, first)))["resultType"] == "complete"
    assert (await one.error("tools/call", params))["code"] == -32029


async def test_in_memory_and_on_stdio_redis_is_not_needed(tmp_path: Path) -> None:
    async with build_aggregator(config(a=lean()), redis_url=f"unix://{tmp_path}/none.sock") as app:
        assert app.health()["a"].state == "running"


async def test_alone_a_state_names_no_replica() -> None:
    async with served(build_aggregator(config(old=talking()))) as front:
        client = await front.connect(modern=True, capabilities=EVERYTHING)
        params = play({"ask": {"a": ROOTS}})
        first = await client.result("tools/call", params)
        assert pending_calls._MARK not in first["requestState"]
        forged = {**params, "requestState": "held-0123456789abcdef.x"}
        assert (await client.error("tools/call", forged))["message"] == OVER
