"""Tasks (SEP-2663): taken by modern clients that declare it, and waited for in the stead of legacy ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.middleware import Middleware
from support.credentials import Credentials
from support.harness import config, connected, lean, until
from support.memory import build_aggregator, scripted
from support.serving import served
from support.wire import EVERYTHING, META, Message, RawClient, text_of

import fastmcp_aggregator
from fastmcp_aggregator.groups import Group
from fastmcp_aggregator.relay import task_streams

TASKS = "io.modelcontextprotocol/tasks"
TAKES = {**EVERYTHING, "extensions": {TASKS: {}}}
MISSING = {"code": -32021, "data": {"requiredCapabilities": {"extensions": {TASKS: {}}}}}
NO_TASK = {"code": -32602, "message": "Task not found"}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a"}
ASKED = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": {}}}
PATHS = pytest.mark.parametrize("fast", [True, False], ids=["fast path", "full path"])
CLIENT_ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
ERA = pytest.mark.parametrize("era", ["modern"])


def tasking(**options: Any) -> Message:
    return lean(era="modern", tool_names=["task", "finish"], **options)


def calling(**arguments: Any) -> Message:
    return {"name": "a:task", "arguments": arguments}


@asynccontextmanager
async def client_of(
    entry: Message | None = None, *, modern: bool = True, capabilities: Message = TAKES, **settings: Any
) -> AsyncIterator[RawClient]:
    app = build_aggregator(config(a=entry or tasking()), **settings)
    async with app, connected(app, modern=modern, capabilities=capabilities) as client:
        yield client


async def until_over(client: RawClient, task_id: str) -> Message:
    while (task := await client.result("tasks/get", {"taskId": task_id}))["status"] == "working":
        pass
    return task


# Taken by the client.


@ERA
@PATHS
@pytest.mark.parametrize("modern", [True])
async def test_a_task_is_made_and_asked_for_under_an_id_of_ours(modern: bool, era: str, fast: bool) -> None:
    async with client_of(fast_path=fast) as client:
        made = await client.result("tools/call", calling(polls=2))
        assert made["resultType"] == "task"
        assert not made["taskId"].startswith("task-")
        seen = [await client.result("tasks/get", {"taskId": made["taskId"]}) for _ in range(3)]
        assert [each["status"] for each in seen] == ["working", "working", "completed"]
        assert {each["taskId"] for each in seen} == {made["taskId"]}
        assert all(each["resultType"] == "complete" for each in seen)
        assert made["ttlMs"] == 60000
        assert text_of(seen[-1]["result"])["done"].startswith("task-")


@ERA
@pytest.mark.parametrize("modern", [True])
async def test_a_server_is_needed_while_a_task_of_it_is_open(modern: bool, era: str) -> None:
    app = build_aggregator(config(a=tasking()))
    async with app, connected(app, modern=True, capabilities=TAKES) as client:
        runtime = app._backend.runtime
        assert runtime is not None
        child = runtime.children["a"]
        assert not runtime.is_needed(child)
        made = await client.result("tools/call", calling(polls=1))
        assert runtime.is_needed(child)
        await until_over(client, made["taskId"])
        assert not runtime.is_needed(child)


@ERA
@pytest.mark.parametrize("modern", [True])
async def test_addresses_in_the_result_of_a_task_are_ours(modern: bool, era: str) -> None:
    result = {"content": [LINK], "_meta": {"ui": {"resourceUri": "ui://a/b"}}}
    async with client_of() as client:
        made = await client.result("tools/call", calling(result=result))
        over = await until_over(client, made["taskId"])
        assert over["result"]["content"] == [{**LINK, "uri": "file://a//a"}]
        assert over["result"]["_meta"] == {"ui": {"resourceUri": "ui://a/a/b"}}


@ERA
@pytest.mark.parametrize("modern", [True])
async def test_an_error_in_a_task_stays_as_it_is_but_for_its_address(modern: bool, era: str) -> None:
    error = {"code": -32602, "message": "nothing there", "data": {"uri": "file:///a"}}
    async with client_of() as client:
        made = await client.result("tools/call", calling(error=error))
        over = await until_over(client, made["taskId"])
        assert over["status"] == "failed"
        assert over["error"] == {**error, "data": {"uri": "file://a//a"}}


@ERA
@pytest.mark.parametrize("modern", [True])
async def test_what_a_task_asks_is_answered_by_an_update(modern: bool, era: str) -> None:
    async with client_of() as client:
        task = {"taskId": (await client.result("tools/call", calling(ask={"x": ASKED, "y": ASKED}, polls=0)))["taskId"]}
        assert (await client.result("tasks/get", task))["inputRequests"].keys() == {"x", "y"}
        updated = await client.result("tasks/update", {**task, "inputResponses": {"x": {"action": "decline"}}})
        assert updated.keys() == {"resultType", "_meta"}
        assert (await client.result("tasks/get", task))["inputRequests"].keys() == {"y"}
        await client.result("tasks/update", {**task, "inputResponses": {"y": {"action": "cancel"}}})
        over = await until_over(client, task["taskId"])
        assert text_of(over["result"])["answers"] == {"x": {"action": "decline"}, "y": {"action": "cancel"}}


@ERA
@pytest.mark.parametrize("modern", [True])
async def test_a_task_is_cancelled(modern: bool, era: str) -> None:
    async with client_of() as client:
        task = {"taskId": (await client.result("tools/call", calling(polls=1000)))["taskId"]}
        assert (await client.result("tasks/cancel", task)).keys() == {"resultType", "_meta"}
        assert (await client.result("tasks/get", task))["status"] == "cancelled"


@ERA
@pytest.mark.parametrize("modern", [True])
async def test_a_server_that_has_forgotten_a_task_says_so_under_our_id(modern: bool, era: str) -> None:
    app = build_aggregator(config(a=tasking()))
    scripts = scripted(app)
    async with app, connected(app, modern=True, capabilities=TAKES) as client:
        made = await client.result("tools/call", calling())
        scripts["a"].life.die()
        await until(lambda: app.health()["a"].state == "running" and len(scripts["a"].lives) == 2)
        error = await client.error("tasks/get", {"taskId": made["taskId"]})
        # Each life in memory has the same pid, so the second knows no task under the id of the first either.
        assert error == {"code": -32602, "message": f"Task {made['taskId']} not found"}


async def test_a_task_whose_server_is_out_of_the_config_is_lost() -> None:
    app = build_aggregator(config(a=tasking(), b=lean()))
    async with app, connected(app, modern=True, capabilities=TAKES) as client:
        made = await client.result("tools/call", calling())
        app._backend.exchange(fastmcp_aggregator.load_config(config(b=lean())))
        app._backend.regroup(lambda _: None)
        error = await client.error("tasks/get", {"taskId": made["taskId"]})
        assert error == {"code": -32602, "message": "Task not found: the server 'a' that had it is gone"}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_who_has_not_declared_tasks_asks_of_none(method: str) -> None:
    async with client_of(capabilities={}) as client:
        error = await client.error(method, {"taskId": "x", "inputResponses": {}})
        assert {key: error[key] for key in MISSING} == MISSING
        required = await client.error("tools/call", calling(required=True))
        assert {key: required[key] for key in MISSING} == MISSING
        assert text_of(await client.result("tools/call", calling())) == "done"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("task_id", ["task-1", "", "v1.AAAA", "x" * 10_000, "é"])
async def test_an_id_that_was_made_up_is_of_no_task(method: str, task_id: str) -> None:
    async with client_of() as client:
        assert await client.error(method, {"taskId": task_id, "inputResponses": {}}) == NO_TASK


async def test_an_id_that_was_changed_is_of_no_task() -> None:
    async with client_of() as client:
        task_id = (await client.result("tools/call", calling()))["taskId"]
        for at in range(0, len(task_id) - 1, 7):
            other = "A" if task_id[at] != "A" else "B"
            changed = f"{task_id[:at]}{other}{task_id[at + 1 :]}"
            assert await client.error("tasks/get", {"taskId": changed}) == NO_TASK


async def test_an_id_is_good_after_a_restart_where_the_server_knows_the_task() -> None:
    server = build_aggregator(config(a=tasking()))
    scripts = scripted(server)
    async with server, connected(server, modern=True, capabilities=TAKES) as client:
        task_id = (await client.result("tools/call", calling()))["taskId"]
        kept = dict(scripts["a"].life.child.tasks)
    again = build_aggregator(config(a=tasking()))
    scripts = scripted(again)
    async with again, connected(again, modern=True, capabilities=TAKES) as client:
        scripts["a"].life.child.tasks.update(kept)
        assert (await until_over(client, task_id))["status"] == "completed"


# Whose it is.


async def test_a_task_is_there_for_nobody_but_who_began_it(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path, {name: ["all", name] for name in ("ann", "ben")})
    groups = {
        "all": {"servers": ["a"]},
        "ann": {"servers": ["a"], "tools": ["a:echo"]},
        "ben": {"servers": ["b"]},
    }
    app = build_aggregator(config(a=tasking(), b=tasking()), groups=groups, auth=credentials.auth)
    async with served(app) as front:

        async def connect(who: str, group: str) -> RawClient:
            return await front.connect(group, modern=True, capabilities=TAKES, headers=credentials.of(who))

        ann, ben = await connect("ann", "all"), await connect("ben", "all")
        task = {"taskId": (await ann.result("tools/call", calling(polls=0)))["taskId"], "inputResponses": {}}
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert await ben.error(method, task) == NO_TASK
            # Nor for herself where its tool is not to be had.
            assert await (await connect("ann", "ann")).error(method, task) == NO_TASK
        assert (await ann.result("tasks/get", task))["status"] == "completed"


async def test_the_header_of_a_request_for_a_task_is_its_id() -> None:
    async with served(build_aggregator(config(a=tasking()))) as front:
        client = await front.connect(modern=True, capabilities=TAKES)
        task = {"taskId": (await client.result("tools/call", calling()))["taskId"]}
        client._headers = lambda message: {  # type: ignore[attr-defined]
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": message["method"],
            "Mcp-Name": "other",
        }
        assert (await client.error("tasks/get", task))["code"] == -32020


# Waited for in the client's stead.


@ERA
@PATHS
@pytest.mark.parametrize("modern", [False])
async def test_a_legacy_client_gets_the_result_of_a_task(modern: bool, era: str, fast: bool) -> None:
    async with client_of(modern=False, fast_path=fast, capabilities={}) as client:
        params = {**calling(required=True, polls=2, statusMessage="soon"), "_meta": {"progressToken": "t"}}
        result = await client.result("tools/call", params)
        assert "resultType" not in result
        assert text_of(result)["done"].startswith("task-")
        steps = [message["params"] for message in client.notifications]
        assert [step["progress"] for step in steps] == list(range(1, len(steps) + 1))
        assert {(step["progressToken"], step["message"]) for step in steps} == {("t", "soon")}
        assert len(steps) >= 2


@ERA
@pytest.mark.parametrize("modern", [False])
async def test_a_legacy_client_is_asked_what_the_task_asks(modern: bool, era: str) -> None:
    async with client_of(modern=False, capabilities=EVERYTHING) as client:
        client.on_question = lambda method, params: {"result": {"action": "accept", "content": {"by": method}}}
        result = await client.result("tools/call", calling(required=True, ask={"x": ASKED}))
        answers = {"x": {"action": "accept", "content": {"by": "elicitation/create"}}}
        assert text_of(result)["answers"] == answers
        assert len(client.questions) == 1


@ERA
@pytest.mark.parametrize("modern", [False])
async def test_a_legacy_client_gets_the_error_of_a_task(modern: bool, era: str) -> None:
    error = {"code": -32042, "message": "no", "data": [1]}
    async with client_of(modern=False, capabilities={}) as client:
        assert await client.error("tools/call", calling(required=True, error=error)) == error


@ERA
@pytest.mark.parametrize("modern", [False])
async def test_addresses_in_that_result_are_ours(modern: bool, era: str) -> None:
    async with client_of(modern=False, capabilities={}) as client:
        result = await client.result("tools/call", calling(required=True, result={"content": [LINK]}))
        assert result == {"content": [{**LINK, "uri": "file://a//a"}]}


@ERA
@pytest.mark.parametrize("modern", [False])
async def test_a_legacy_client_that_cancels_cancels_the_task(modern: bool, era: str) -> None:
    app = build_aggregator(config(a=tasking()))
    scripts = scripted(app)
    async with app, connected(app, capabilities={}) as client:
        params = {**calling(required=True, polls=10**6), "_meta": {"progressToken": "t"}}
        number, _ = client.begin("tools/call", params)
        await client.heard("notifications/progress")
        client.notify("notifications/cancelled", {"requestId": number})
        tasks = scripts["a"].life.child.tasks
        await until(lambda: [task["status"] for task in tasks.values()] == ["cancelled"])


@CLIENT_ERAS
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("options", [{"tool_search": True}, {}], ids=["searched", "middleware"])
async def test_what_fastmcp_serves_is_waited_for(modern: bool, required: bool, options: Message) -> None:
    app = build_aggregator(config(a=tasking()), **options)
    app.add_middleware(Middleware())
    params = calling(required=required)
    if options:
        params = {"name": "call_tool", "arguments": params}
    async with app, connected(app, modern=modern, capabilities=TAKES) as client:
        text = text_of(await client.result("tools/call", params))
        assert text["done"].startswith("task-") if required else text == "done"


# What servers say of tasks.

ACKNOWLEDGED, CHANGED = "notifications/subscriptions/acknowledged", "notifications/tasks"


@ERA
@pytest.mark.parametrize("modern", [True])
@pytest.mark.parametrize("front", ["pipe", "http"])
async def test_a_client_listens_for_its_tasks(modern: bool, era: str, front: str) -> None:
    app = build_aggregator(config(a=tasking(), b=tasking()))
    scripts = scripted(app)
    opened = served(app) if front == "http" else connected(app, modern=True, capabilities=TAKES)
    async with app, opened as opened_front:
        client: RawClient = opened_front
        if front == "http":
            client = await opened_front.connect(modern=True, capabilities=TAKES)
        result = {"content": [LINK]}
        task_ids = [
            (await client.result("tools/call", {"name": f"{key}:task", "arguments": {"result": result}}))["taskId"]
            for key in ("a", "b")
        ]
        params = {"notifications": {"taskIds": [*task_ids, "made-up"], "toolsListChanged": True}}
        number, _ = client.begin("subscriptions/listen", params)
        agreed = (await client.heard(ACKNOWLEDGED))["params"]
        assert sorted(agreed["notifications"].pop("taskIds")) == sorted(task_ids)
        assert agreed["notifications"] == {"toolsListChanged": True}
        await client.call("b:finish")
        told = (await client.heard(CHANGED))["params"]
        assert told["taskId"] == task_ids[1]
        assert told["status"] == "completed"
        assert told["result"]["content"] == [{**LINK, "uri": "file://b//a"}]
        assert told["_meta"] == {"io.modelcontextprotocol/subscriptionId": number}
        if front == "http":
            client.hang_up(number)  # type: ignore[attr-defined]
        else:
            client.notify("notifications/cancelled", {"requestId": number})
        await until(lambda: not scripts["a"].life.child.task_streams and not scripts["b"].life.child.task_streams)


@pytest.mark.parametrize(
    "left",
    [Group("red", servers=("b",)), Group("red", servers=("a", "b"), tools=("b:task",))],
    ids=["the server", "the tool"],
)
async def test_a_stream_says_nothing_of_a_task_whose_tool_has_left_the_group(left: Group) -> None:
    app = build_aggregator(config(a=tasking(), b=tasking()), groups={"red": {"servers": ["a", "b"]}})
    async with served(app) as front:
        everybody = await front.connect(modern=True)
        client = await front.connect("red", modern=True, capabilities=TAKES)
        made = {key: (await client.result("tools/call", {"name": f"{key}:task"}))["taskId"] for key in ("a", "b")}
        client.begin("subscriptions/listen", {"notifications": {"taskIds": list(made.values())}})
        await client.heard(ACKNOWLEDGED)
        app._backend.regroup(lambda group_id: left if group_id == "red" else None)
        for key in ("a", "b"):
            assert await everybody.call(f"{key}:finish") == {"finished": 1}
        assert (await client.heard(CHANGED))["params"]["taskId"] == made["b"]
        assert made["a"] not in repr([each for each in client.notifications if each["method"] == CHANGED])


async def test_who_has_not_declared_tasks_listens_for_none() -> None:
    async with client_of(capabilities={}) as client:
        error = await client.error("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
        assert {key: error[key] for key in MISSING} == MISSING


async def test_a_server_that_says_nothing_of_tasks_is_not_waited_for() -> None:
    async with client_of() as client:
        task_id = (await client.result("tools/call", calling()))["taskId"]
        for task_ids in ([task_id[:-4]], [1, None], "x", []):
            client.begin("subscriptions/listen", {"notifications": {"taskIds": task_ids}})
            assert "taskIds" not in (await client.heard(ACKNOWLEDGED))["params"]["notifications"]


# By other ways.


@CLIENT_ERAS
@pytest.mark.parametrize("required", [False, True])
async def test_a_call_by_way_of_the_search_is_answered_as_one_by_name(modern: bool, required: bool) -> None:
    params = {"name": "call_tool", "arguments": calling(required=required)}
    async with client_of(modern=modern, tool_search=True) as client:
        result = await client.result("tools/call", params)
        if modern:
            assert result["resultType"] == "task"
            result = (await until_over(client, result["taskId"]))["result"]
        assert text_of(result) == "done" if not (modern or required) else text_of(result)["done"]


async def test_the_search_passes_questions_on() -> None:
    ask = {"resultType": "input_required", "inputRequests": {"x": ASKED}, "requestState": "s"}
    async with client_of(tool_search=True) as client:
        params = {"name": "call_tool", "arguments": {"name": "a:raw", "arguments": ask}}
        result = await client.result("tools/call", params)
        assert {key: result[key] for key in ask} == ask
        answered = {**params, "inputResponses": {"x": {"action": "cancel"}}, "requestState": "s"}
        answered["arguments"] = {"name": "a:params"}
        seen = text_of(await client.result("tools/call", answered))
        assert seen["inputResponses"] == {"x": {"action": "cancel"}}
        assert seen["requestState"] == "s"


async def test_the_json_api_makes_tasks_for_programs_that_declare_it() -> None:
    meta = {"_meta": {f"{META}clientCapabilities": {"extensions": {TASKS: {}}}}}
    async with served(build_aggregator(config(a=tasking()))) as front, front.browser("/mcp") as http:
        assert (await http.post("/tools/call", json=calling())).json()["content"]
        made = (await http.post("/tools/call", json={**calling(polls=0), **meta})).json()
        assert made["resultType"] == "task"
        over = (await http.post("/tasks/get", json={"taskId": made["taskId"], **meta})).json()
        assert text_of(over["result"])["done"]
        refused = await http.post("/tasks/get", json={"taskId": made["taskId"]})
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == MISSING["code"]


async def test_the_json_api_passes_questions_on_to_programs_that_declare_it() -> None:
    ask = {"resultType": "input_required", "inputRequests": {"x": ASKED}, "requestState": "s"}
    body = {"name": "a:raw", "arguments": ask, "_meta": {f"{META}clientCapabilities": {"elicitation": {}}}}
    async with served(build_aggregator(config(a=tasking()))) as front, front.browser("/mcp") as http:
        result = (await http.post("/tools/call", json=body)).json()
        assert {key: result[key] for key in ask} == ask


async def test_policies_see_the_beginning_and_the_end(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with client_of(audit=str(log)) as client:
        task = {"taskId": (await client.result("tools/call", calling(polls=1)))["taskId"]}
        for _ in range(2):
            await client.result("tasks/get", task)
        cancelled = await client.result("tools/call", calling(result={"content": [], "isError": True}, polls=0))
        await client.result("tasks/get", {"taskId": cancelled["taskId"]})
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    seen = [(each["method"], each["tool"], each["outcome"]) for each in entries if each.get("method")]
    assert seen == [
        ("tools/call", "task", "task"),
        ("tasks/get", "task", "task"),
        ("tasks/get", "task", "ok"),
        ("tools/call", "task", "task"),
        ("tasks/get", "task", "tool_error"),
    ]
    names = [each["task"] for each in entries if each.get("method")]
    assert names[0] == names[1] == names[2] != names[3] == names[4]
    assert task["taskId"] not in log.read_text()


# An instance of its own.


async def test_an_isolated_instance_with_an_open_task_is_not_ended() -> None:
    settings = {"servers": {"a": {"isolation": "session"}}}
    app = build_aggregator(config(a=tasking()), **settings)
    scripts = scripted(app)
    async with served(app) as front:
        client = await front.connect(modern=True, capabilities=TAKES)
        task = {"taskId": (await client.result("tools/call", calling(polls=1)))["taskId"]}
        await client.result("tools/call", {"name": "a:pid"})  # an instance for this request alone
        await until(lambda: [life.code is None for life in scripts["a"].lives] == [True, True, False])
        assert (await client.result("tasks/get", task))["status"] == "working"
        assert (await client.result("tasks/get", task))["status"] == "completed"
        await until(lambda: [life.code is None for life in scripts["a"].lives] == [True, False, False])
        assert (await client.error("tasks/get", task))["message"].startswith("Task not found: the server 'a'")


async def test_instances_with_open_tasks_give_way_to_other_callers_that_have_fewer() -> None:
    settings = {"servers": {"a": {"isolation": "session"}}, "max_isolated_sessions": 4}
    app = build_aggregator(config(a=tasking()), **settings)
    async with served(app) as front, connected(app) as one, connected(app) as other:
        client = await front.connect(modern=True, capabilities=TAKES)
        made = [await client.result("tools/call", calling(polls=100)) for _ in range(4)]
        assert await one.call("a:pid") != await other.call("a:pid")
        for task in made[:2]:
            error = await client.error("tasks/get", {"taskId": task["taskId"]})
            assert error["message"] == "Task not found: the server 'a' that had it is gone"
        for task in made[2:]:
            assert (await client.result("tasks/get", {"taskId": task["taskId"]}))["status"] == "working"


async def test_a_poll_costs_what_a_request_costs() -> None:
    """Its server is asked once, and nothing is kept."""
    app = build_aggregator(config(a=tasking()))
    scripts = scripted(app)
    async with app, connected(app, modern=True, capabilities=TAKES) as client:
        task = {"taskId": (await client.result("tools/call", calling(polls=100)))["taskId"]}
        before = len(scripts["a"].life.received)
        await asyncio.gather(*(client.result("tasks/get", task) for _ in range(10)))
        assert len(scripts["a"].life.received) == before + 10
        assert all(META + "clientCapabilities" in each["params"]["_meta"] for each in scripts["a"].life.received[-10:])


async def test_a_server_agrees_to_tasks_that_were_asked_for_and_to_each_once() -> None:
    heard = task_streams._OfServer({"a": NotImplemented, "b": NotImplemented}, lambda *about: None)
    agreed = [["a"], {}, None, 1, "c", *["b"] * 100_000]
    heard.heard("notifications/subscriptions/acknowledged", {"notifications": {"taskIds": agreed}})
    assert heard.agreed.result() == ["b"]
