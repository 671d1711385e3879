"""What real servers answer is passed on as they answer it, but for addresses, and those can be read back."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from real_servers import Place, public_address, public_result, requires_servers, without_clock
from real_wire import MODERN, Both, canonical, is_enveloped, outcome, unenveloped

pytestmark = [pytest.mark.real, requires_servers]


@dataclass(frozen=True)
class Asked:
    """One request, in the words of the server that it is for."""

    server_key: str
    method: str
    target: str
    arguments: dict[str, Any] = field(default_factory=dict)
    """`FILES` and `REPOSITORY` in them stand for the real paths."""

    def __str__(self) -> str:
        return f"{self.server_key} {self.target.rsplit('/', 1)[-1]} {json.dumps(self.arguments)[:60]}"

    def params(self, place: Place, *, public: bool) -> dict[str, Any]:
        """The request's parameters for the server itself, or for the aggregator."""
        if self.method == "resources/read":
            return {"uri": public_address(self.server_key, self.target) if public else self.target}
        name = f"{self.server_key}:{self.target}" if public else self.target
        return {"name": name, "arguments": place.filled(self.arguments)}


def call(server_key: str, tool: str, /, **arguments: Any) -> Asked:
    return Asked(server_key, "tools/call", tool, arguments)


def prompt(server_key: str, name: str, /, **arguments: Any) -> Asked:
    return Asked(server_key, "prompts/get", name, arguments)


def read(server_key: str, uri: str) -> Asked:
    return Asked(server_key, "resources/read", uri)


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
    read("everything", "demo://resource/static/document/features.md"),
    read("everything", "demo://resource/dynamic/text/3"),
    read("everything", "demo://resource/dynamic/blob/3"),
    call("time", "convert_time", source_timezone="UTC", time="12:30", target_timezone="Asia/Tokyo"),
    call("git", "git_status", repo_path="REPOSITORY"),
    call("git", "git_log", repo_path="REPOSITORY"),
    call("git", "git_show", repo_path="REPOSITORY", revision="HEAD"),
    call("git", "git_diff_unstaged", repo_path="REPOSITORY"),
    call("filesystem", "read_text_file", path="FILES/hello.txt"),
    call("filesystem", "list_directory", path="FILES"),
    call("filesystem", "directory_tree", path="FILES"),
    call("filesystem", "read_multiple_files", paths=["FILES/hello.txt", "FILES/sub/notes.md"]),
    call("filesystem", "search_files", path="FILES", pattern="**/*.md"),
    call("filesystem-other", "list_allowed_directories"),
    call("memory", "create_entities", entities=[ALICE]),
    call("memory", "read_graph"),
    call("memory", "search_nodes", query="tea"),
    read("memory", "memory://knowledge-graph"),
    call("memory-other", "read_graph"),
    call("sequential-thinking", "sequentialthinking", thought="First.", **THOUGHT),
    call("sequential-thinking", "sequentialthinking", thought="Again.", **THOUGHT),
]

ASKED_WRONGLY = [
    call("everything", "echo"),
    call("everything", "simulate-research-query", topic="needs a task"),
    prompt("everything", "args-prompt"),
    read("everything", "demo://resource/nowhere"),
    call("time", "convert_time", source_timezone="Nowhere", time="12:30", target_timezone="UTC"),
    call("git", "git_log", repo_path="/nowhere"),
    call("filesystem", "read_text_file", path="/outside.txt"),
    call("filesystem", "read_text_file", path="FILES/missing.txt"),
    call("memory", "create_entities", entities="none"),
]


def both_answer(both: Both, place: Place, asked: Asked) -> tuple[dict[str, Any], dict[str, Any]]:
    """The aggregator's answer, and the one expected of it: the server's own with public addresses."""
    front = both.front.answer(asked.method, asked.params(place, public=True))
    direct = both.direct[asked.server_key].answer(asked.method, asked.params(place, public=False))
    assert is_enveloped(front.get("result", {})) is (both.front.version == MODERN and "result" in front)
    return unenveloped(front), public_result(asked.server_key, unenveloped(direct))


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_an_answer_is_the_servers_own(both: Both, place: Place, asked: Asked) -> None:
    answer, expected = both_answer(both, place, asked)
    assert "result" in answer
    assert not answer["result"].get("isError")
    assert canonical(answer, without_clock) == canonical(expected, without_clock)


@pytest.mark.parametrize("asked", ASKED_WRONGLY, ids=str)
def test_a_refusal_is_the_servers_own(both: Both, place: Place, asked: Asked) -> None:
    answer, expected = both_answer(both, place, asked)
    assert "error" in answer or answer["result"]["isError"]
    assert canonical(answer) == canonical(expected)


def test_a_call_that_asks_for_a_task_is_answered_as_if_it_did_not(both: Both) -> None:
    call = {"arguments": {"a": 1, "b": 2}, "task": {"ttl": 60_000}}
    answer = both.front.answer("tools/call", {"name": "everything:get-sum", **call})
    direct = both.direct["everything"].answer("tools/call", {"name": "get-sum", "arguments": call["arguments"]})
    assert unenveloped(answer) == unenveloped(direct)
    needing_one = {"name": "everything:simulate-research-query", "arguments": {"topic": "x"}, "task": {}}
    assert both.front.result("tools/call", needing_one)["isError"]


def test_every_resource_link_in_a_result_can_be_read(both: Both) -> None:
    call = {"name": "everything:get-resource-links", "arguments": {"count": 4}}
    links = [block for block in both.front.result("tools/call", call)["content"] if "uri" in block]
    assert len(links) == 4
    for link in links:
        (part,) = both.front.result("resources/read", {"uri": link["uri"]})["contents"]
        assert part["uri"] == link["uri"]
        text = part["text"] if "text" in part else base64.b64decode(part["blob"]).decode()
        number = link["uri"].rsplit("/", 1)[-1]
        assert text.startswith(f"Resource {number}: ")


def test_a_resource_embedded_in_a_result_or_a_prompt_can_be_read(both: Both) -> None:
    call = {"name": "everything:get-resource-reference", "arguments": {"resourceType": "Text", "resourceId": 2}}
    arguments = {"resourceType": "Text", "resourceId": "2"}
    prompt = {"name": "everything:resource-prompt", "arguments": arguments}
    blocks = both.front.result("tools/call", call)["content"]
    blocks += [message["content"] for message in both.front.result("prompts/get", prompt)["messages"]]
    embedded = [block["resource"] for block in blocks if block["type"] == "resource"]
    assert len(embedded) == 2
    for resource in embedded:
        (part,) = both.front.result("resources/read", {"uri": resource["uri"]})["contents"]
        assert without_clock(part["text"]) == without_clock(resource["text"])


def test_a_resource_that_a_call_has_made_is_announced_then_listed_and_readable(both: Both) -> None:
    if both.front.version == MODERN:
        both.front.send("subscriptions/listen", {"notifications": {"resourcesListChanged": True}})
        both.front.wait_for("notifications/subscriptions/acknowledged")
    made = {"name": "made.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resourceLink"}
    call = {"name": "everything:gzip-file-as-resource", "arguments": made}
    (link,) = both.front.result("tools/call", call)["content"]
    both.front.wait_for("notifications/resources/list_changed")
    assert link["uri"] in [resource["uri"] for resource in both.front.list_all("resources/list", "resources")]
    (part,) = both.front.result("resources/read", {"uri": link["uri"]})["contents"]
    assert gzip.decompress(base64.b64decode(part["blob"])) == b"hello"


def test_calls_to_all_servers_at_once_each_get_their_own_answer(both: Both, place: Place) -> None:
    stateless = [asked for asked in ASKED if asked.server_key not in ("memory", "sequential-thinking")]
    rounds = [asked for _ in range(5) for asked in stateless]
    sent = [both.front.send(asked.method, asked.params(place, public=True)) for asked in rounds]
    for asked, answer in zip(rounds, sent, strict=True):
        direct = both.direct[asked.server_key].answer(asked.method, asked.params(place, public=False))
        expected = public_result(asked.server_key, unenveloped(direct))
        received = unenveloped(outcome(answer.result(60)))
        assert canonical(received, without_clock) == canonical(expected, without_clock)


def test_progress_arrives_under_the_callers_token_in_order_and_before_the_result(both: Both) -> None:
    long = {"name": "everything:trigger-long-running-operation", "arguments": {"duration": 0.2, "steps": 4}}
    answer = both.front.send("tools/call", {**long, "_meta": {"progressToken": "the caller's"}}).result(60)
    until = both.front.transcript.index(answer)
    progress = [
        message["params"]
        for message in both.front.transcript[:until]
        if message.get("method") == "notifications/progress" and message["params"]["progressToken"] == "the caller's"
    ]
    assert [(params["progress"], params["total"]) for params in progress] == [(1, 4), (2, 4), (3, 4), (4, 4)]
