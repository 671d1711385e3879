"""What real servers answer comes back as they answer it, and can be used: equal as JSON but for addresses."""

from __future__ import annotations

import asyncio
import base64
import gzip

import pytest
from real_answers import Message, canonical, is_enveloped, outcome, public, unenveloped, without_clock
from real_fronts import SHARED_FRONTS
from real_requests import Asked, call, complete, prompt, read
from real_servers import requires_servers
from real_talks import Both

pytestmark = [
    pytest.mark.real,
    requires_servers,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("both", SHARED_FRONTS, ids=str, indirect=True),
]

DOCUMENTS = ("architecture", "extension", "features", "how-it-works", "instructions", "startup", "structure")
EDITS = [{"oldText": "# Notes", "newText": "# Nötes"}]
ALICE = {"name": "Alice", "entityType": "person", "observations": ["likes tea", "trinkt gern Tee – täglich"]}
THOUGHT = {"thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": True}

ASKED = [
    call("everything", "echo", message="Grüße, 世界 🎉"),
    call("everything", "get-sum", a=0.1, b=2),
    call("everything", "get-structured-content", location="Chicago"),
    call("everything", "get-annotated-message", messageType="error", includeImage=True),
    call("everything", "get-tiny-image"),
    call("everything", "get-resource-links", count=5),
    call("everything", "get-resource-reference", resourceType="Text", resourceId=7),
    call("everything", "get-resource-reference", resourceType="Blob", resourceId=7),
    prompt("everything", "simple-prompt"),
    prompt("everything", "args-prompt", city="Bern", state="BE"),
    prompt("everything", "completable-prompt", department="Engineering", name="Alice"),
    prompt("everything", "resource-prompt", resourceType="Text", resourceId="3"),
    *(read("everything", f"demo://resource/static/document/{name}.md") for name in DOCUMENTS),
    read("everything", "demo://resource/dynamic/text/3"),
    read("everything", "demo://resource/dynamic/blob/3"),
    complete("everything", "completable-prompt", "department", "E"),
    complete("everything", "completable-prompt", "name", "", department="Sales"),
    complete("everything", "completable-prompt", "name", "no such name", department="Sales"),
    complete("everything", "resource-prompt", "resourceType", ""),
    complete("everything", "args-prompt", "city", "B"),
    complete("everything", "demo://resource/dynamic/text/{resourceId}", "resourceId", "12"),
    complete("everything", "demo://resource/dynamic/blob/{resourceId}", "resourceId", "no number"),
    call("time", "convert_time", source_timezone="UTC", time="12:30", target_timezone="Asia/Tokyo"),
    call("git", "git_status", repo_path="REPOSITORY"),
    call("git", "git_log", repo_path="REPOSITORY"),
    call("git", "git_show", repo_path="REPOSITORY", revision="HEAD"),
    call("git", "git_diff_unstaged", repo_path="REPOSITORY"),
    call("git", "git_diff_staged", repo_path="REPOSITORY"),
    call("git", "git_branch", repo_path="REPOSITORY", branch_type="local"),
    call("filesystem", "read_text_file", path="FILES/hello.txt"),
    call("filesystem", "read_text_file", path="FILES/hello.txt", head=1),
    call("filesystem", "edit_file", path="FILES/sub/notes.md", edits=EDITS, dryRun=True),
    call("filesystem", "list_directory", path="FILES"),
    call("filesystem", "list_directory_with_sizes", path="FILES"),
    call("filesystem", "directory_tree", path="FILES"),
    call("filesystem", "read_multiple_files", paths=["FILES/hello.txt", "FILES/sub/notes.md"]),
    call("filesystem", "search_files", path="FILES", pattern="**/*.md"),
    call("filesystem-other", "list_allowed_directories"),
    call("memory", "create_entities", entities=[ALICE]),
    call("memory", "read_graph"),
    call("memory", "add_observations", observations=[{"entityName": "Alice", "contents": ["plays the 🎻"]}]),
    call("memory", "create_relations", relations=[{"from": "Alice", "to": "Alice", "relationType": "knows"}]),
    call("memory", "search_nodes", query="tea"),
    call("memory", "open_nodes", names=["Alice", "Bob"]),
    read("memory", "memory://knowledge-graph"),
    call("memory", "delete_entities", entityNames=["Alice"]),
    call("memory-other", "read_graph"),
    call("sequential-thinking", "sequentialthinking", thought="First.", **THOUGHT),
    call("sequential-thinking", "sequentialthinking", thought="Again.", **THOUGHT),
]

ASKED_WRONGLY = [
    call("everything", "echo"),
    call("everything", "simulate-research-query", topic="needs a task"),
    prompt("everything", "args-prompt"),
    complete("everything", "no-such-resource://{id}", "id", "1"),
    read("everything", "demo://resource/nowhere"),
    call("time", "convert_time", source_timezone="Nowhere", time="12:30", target_timezone="UTC"),
    call("git", "git_log", repo_path="/nowhere"),
    call("filesystem", "read_text_file", path="/outside.txt"),
    call("filesystem", "read_text_file", path="FILES/missing.txt"),
    call("memory", "create_entities", entities="none"),
]


async def both_answer(both: Both, asked: Asked) -> tuple[Message, Message]:
    """The aggregator's answer, and the one expected of it: the server's own with public addresses."""
    front, direct = both.talks(asked.server_key)
    answer = await front.ask(asked)
    assert is_enveloped(answer.get("result", {})) is (both.kind.is_modern and "result" in answer)
    expected = public(asked.server_key, unenveloped(outcome(await direct.ask(asked))))
    return unenveloped(outcome(answer)), expected


@pytest.mark.parametrize("asked", ASKED, ids=str)
async def test_an_answer_is_the_servers_own(both: Both, asked: Asked) -> None:
    answer, expected = await both_answer(both, asked)
    assert "result" in answer
    assert not answer["result"].get("isError")
    assert canonical(answer) == canonical(expected)


@pytest.mark.parametrize("asked", ASKED_WRONGLY, ids=str)
async def test_a_refusal_is_the_servers_own(both: Both, asked: Asked) -> None:
    answer, expected = await both_answer(both, asked)
    assert "error" in answer or answer["result"]["isError"]
    assert canonical(answer) == canonical(expected)


async def test_a_call_that_asks_for_a_task_is_answered_as_if_it_did_not(both: Both) -> None:
    call = {"arguments": {"a": 1, "b": 2}, "task": {"ttl": 60_000}}
    answer = await both.front.send("tools/call", {"name": "everything:get-sum", **call})
    direct = await both.direct["everything"].send("tools/call", {"name": "get-sum", "arguments": call["arguments"]})
    assert unenveloped(outcome(answer)) == unenveloped(outcome(direct))
    needing_one = {"name": "everything:simulate-research-query", "arguments": {"topic": "x"}, "task": {}}
    assert (await both.front.result("tools/call", needing_one))["isError"]


async def test_every_resource_link_in_a_result_can_be_read(both: Both) -> None:
    call = {"name": "everything:get-resource-links", "arguments": {"count": 4}}
    links = [block for block in (await both.front.result("tools/call", call))["content"] if "uri" in block]
    assert len(links) == 4
    for link in links:
        (part,) = (await both.front.result("resources/read", {"uri": link["uri"]}))["contents"]
        assert part["uri"] == link["uri"]
        text = part["text"] if "text" in part else base64.b64decode(part["blob"]).decode()
        number = link["uri"].rsplit("/", 1)[-1]
        assert text.startswith(f"Resource {number}: ")


async def test_a_resource_embedded_in_a_result_or_a_prompt_can_be_read(both: Both) -> None:
    call = {"name": "everything:get-resource-reference", "arguments": {"resourceType": "Text", "resourceId": 2}}
    arguments = {"resourceType": "Text", "resourceId": "2"}
    prompt = {"name": "everything:resource-prompt", "arguments": arguments}
    blocks = (await both.front.result("tools/call", call))["content"]
    blocks += [message["content"] for message in (await both.front.result("prompts/get", prompt))["messages"]]
    embedded = [block["resource"] for block in blocks if block["type"] == "resource"]
    assert len(embedded) == 2
    for resource in embedded:
        (part,) = (await both.front.result("resources/read", {"uri": resource["uri"]}))["contents"]
        assert without_clock(part["text"]) == without_clock(resource["text"])


async def make_resource(both: Both, name: str) -> str:
    """Let server-everything make a resource; its address."""
    made = {"name": name, "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resourceLink"}
    call = {"name": "everything:gzip-file-as-resource", "arguments": made}
    (link,) = (await both.front.result("tools/call", call))["content"]
    return str(link["uri"])


async def test_a_resource_that_a_call_has_made_can_be_read(both: Both) -> None:
    (part,) = (await both.front.result("resources/read", {"uri": await make_resource(both, "read.gz")}))["contents"]
    assert gzip.decompress(base64.b64decode(part["blob"])) == b"hello"


async def test_a_resource_that_a_call_has_made_is_announced_then_listed(both: Both) -> None:
    if both.kind.is_modern:
        both.front.begin("subscriptions/listen", {"notifications": {"resourcesListChanged": True}})
        await both.front.heard("notifications/subscriptions/acknowledged")
    await both.front.names("resources/list")  # all servers are up now: what changes after it is announced
    both.front.notifications.clear()
    address = await make_resource(both, "announced.gz")
    await both.front.heard("notifications/resources/list_changed")
    while address not in await both.front.names("resources/list"):  # that was late, and of what another test has made
        await both.front.heard("notifications/resources/list_changed")


async def test_calls_to_all_servers_at_once_each_get_their_own_answer(both: Both) -> None:
    stateless = [asked for asked in ASKED if asked.server_key not in ("memory", "sequential-thinking")]
    rounds = [asked for _ in range(5) for asked in stateless]
    answers = await asyncio.gather(*(both.talks(asked.server_key)[0].ask(asked) for asked in rounds))
    for asked, answer in zip(rounds, answers, strict=True):
        expected = public(asked.server_key, unenveloped(outcome(await both.talks(asked.server_key)[1].ask(asked))))
        assert canonical(unenveloped(outcome(answer))) == canonical(expected)
