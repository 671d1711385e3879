"""The processes of real servers: started with their own environment only, held, and ended with the aggregator."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from real_servers import requires_servers
from real_wire import WAIT, WireClient

pytestmark = [pytest.mark.real, requires_servers]

Entries = dict[str, dict[str, Any]]
Start = Callable[..., WireClient]


def descendants(front: WireClient) -> list[psutil.Process]:
    return psutil.Process(front.process.pid).children(recursive=True)


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running()]


def test_every_server_is_one_process_and_the_same_one_after_many_calls(start: Start, entries: Entries) -> None:
    front = start(entries)
    front.result("tools/list")
    before = {process.pid for process in descendants(front)}
    assert len(before) == len(entries)
    sums = [{"name": "everything:get-sum", "arguments": {"a": number, "b": 1}} for number in range(100)]
    answers = [front.send("tools/call", sum_) for sum_ in sums]
    for number, answer in enumerate(answers):
        (block,) = answer.result(WAIT)["result"]["content"]
        assert block["text"] == f"The sum of {number} and 1 is {number + 1}."
    for key in ("filesystem", "filesystem-other"):
        front.result("tools/call", {"name": f"{key}:list_allowed_directories", "arguments": {}})
    assert {process.pid for process in descendants(front)} == before


def test_no_process_is_left_when_the_client_closes_stdin(start: Start, entries: Entries) -> None:
    front = start(entries)
    front.result("tools/list")
    started = descendants(front)
    assert len(started) == len(entries)
    assert front.close() == 0
    assert still_running(started) == []


def test_a_call_is_answered_and_no_process_left_when_the_aggregator_is_told_to_end_during_it(
    start: Start, entries: Entries
) -> None:
    front = start(entries)
    front.result("tools/list")
    started = descendants(front)
    assert len(started) == len(entries)
    slow = {"name": "everything:trigger-long-running-operation", "arguments": {"duration": 2, "steps": 20}}
    answer = front.send("tools/call", {**slow, "_meta": {"progressToken": 1}})
    front.wait_for("notifications/progress")
    front.process.send_signal(signal.SIGTERM)
    (block,) = answer.result(WAIT)["result"]["content"]
    assert block["text"].startswith("Long running operation completed.")
    front.wait()
    assert still_running(started) == []


def test_a_server_sees_its_own_environment_and_none_of_the_aggregators(start: Start, entries: Entries) -> None:
    everything = {**entries["everything"], "env": {"FOR_THE_SERVER": "yes"}}
    front = start({"everything": everything}, NOT_FOR_SERVERS="secret")
    (block,) = front.result("tools/call", {"name": "everything:get-env", "arguments": {}})["content"]
    environment = json.loads(block["text"])
    assert environment["FOR_THE_SERVER"] == "yes"
    assert "secret" not in block["text"]
