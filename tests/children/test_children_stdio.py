"""MCP over the pipes of a child that writes more than it may: nobody gets an answer that was for somebody else."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from anyio import EndOfStream
from mcp.shared.exceptions import MCPError
from support.doubles import FedProcess, NoFlowControl
from support.harness import PATIENCE
from support.sessions import session_with
from support.virtual_time import elapsed

from fastmcp_aggregator.children.stdio.transport import ProcessTransport
from fastmcp_aggregator.settings.options import EndpointOptions

LIMIT = 64 * 1024
CHILD = """
import json, sys
waiting = []
huge = "x" * 200_000
def send(text):
    print(text, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "n", "version": "1"},
        }
        send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    elif message.get("method") == "wait":
        waiting.append(message["id"])
    elif message.get("method") == "huge":
        mine, others = message["id"], waiting.pop()
        send(message["params"]["form"].replace("HUGE", huge).replace("MINE", str(mine)).replace("OTHERS", str(others)))
        send(json.dumps({"jsonrpc": "2.0", "id": others, "result": {"right": True}}))
    elif "id" in message:
        send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "none"}}))
"""


ENTRY = {"command": sys.executable, "args": ["-S", "-c", CHILD]}


async def answers_to(form: str) -> tuple[object, object]:
    """What the waiting call gets, and what the call whose answer has this form gets."""
    async with session_with(ENTRY, era="legacy", options=EndpointOptions(line_limit=LIMIT)) as opened:
        others = asyncio.create_task(opened.request("wait", {}))
        await asyncio.sleep(0)
        mine = asyncio.create_task(opened.request("huge", {"form": form}))
        outcomes = await asyncio.wait_for(asyncio.gather(others, mine, return_exceptions=True), PATIENCE)
        return outcomes[0], outcomes[1]


@pytest.mark.parametrize(
    "form",
    [
        '{"jsonrpc":"2.0","id":MINE,"result":{"text":"HUGE"}}',
        '{"jsonrpc": "2.0", "id": MINE, "result": {"id": OTHERS, "text": "HUGE"}}',
        '{"id":MINE,"jsonrpc":"2.0","result":{"text":"HUGE"}}',
        '{"id":MINE,"result":{"text":"HUGE"},"jsonrpc":"2.0"}',
        '{"jsonrpc":"2.0","id":MINE,"error":{"code":1,"message":"HUGE"}}',
    ],
)
async def test_an_answer_that_is_too_large_is_an_error_for_its_call_and_for_no_other(form: str) -> None:
    others, mine = await answers_to(form)
    assert others == {"right": True}
    assert isinstance(mine, MCPError)
    assert mine.message.startswith("response too large: more than ")


@pytest.mark.parametrize(
    "form",
    [
        '{"result":{"id":OTHERS,"text":"HUGE"},"jsonrpc":"2.0","id":MINE}',
        '{"jsonrpc":"2.0","result":{"structuredContent":{"id": OTHERS},"text":"HUGE"},"id":MINE}',
        '{"jsonrpc":"2.0","id":OTHERS,"method":"sampling/createMessage","params":{"text":"HUGE"}}',
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"id":OTHERS,"data":"HUGE"}}',
        'junk "id": OTHERS HUGE',
    ],
)
async def test_what_looks_like_an_id_inside_something_too_large_never_answers_the_call_of_that_id(form: str) -> None:
    others, _ = await answers_to(form)
    assert not isinstance(others, MCPError) or not others.message.startswith("response too large")


FLOODING = CHILD.replace(
    'elif message.get("method") == "wait":',
    """elif message.get("method") == "flood":
        for number in range(2_500):
            send(json.dumps({"jsonrpc": "2.0", "id": "p" * 100 + str(number), "method": "ping"}))
        send(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}))
        import time
        time.sleep(60)
    elif message.get("method") == "wait":""",
)


async def test_answers_to_a_child_that_asks_without_end_and_reads_none_are_bounded() -> None:
    entry = {"command": sys.executable, "args": ["-S", "-c", FLOODING]}
    async with session_with(entry, era="legacy") as opened:
        assert await asyncio.wait_for(opened.request("flood", {}), PATIENCE) == {}
        assert len(asyncio.all_tasks()) < 1200


async def test_a_connection_is_lost_once_all_that_came_before_its_end_was_delivered() -> None:
    process = FedProcess()
    transport = ProcessTransport(process, has_fast_path=False)  # type: ignore[arg-type]
    with transport.reader(NoFlowControl(), lambda _: None) as reader:
        transport._attach(reader)
        line = json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"text": "x,"}}).encode()
        process.write([line, line])
        process.end()
        for _ in range(2):
            assert not transport.lost.is_set()
            await reader.receive()
        with pytest.raises(EndOfStream):
            await reader.receive()
        assert transport.lost.is_set()


def test_a_connection_that_nobody_reads_is_lost_a_second_after_its_end() -> None:
    async def end() -> None:
        process = FedProcess()
        transport = ProcessTransport(process, has_fast_path=False)  # type: ignore[arg-type]
        with transport.reader(NoFlowControl(), lambda _: None) as reader:
            transport._attach(reader)
            process.end()
            await transport.lost.wait()

    assert elapsed(end()) == 1
