"""When a pipe is read that has two reasons not to be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest
from mcp_types import JSONRPCRequest
from support.doubles import FedProcess, FlowControl
from support.harness import until

from fastmcp_aggregator.children.stdio.transport import PacedFlowControl, ProcessTransport

LONG = 3600.0


@pytest.fixture
def pipe() -> FlowControl:
    return FlowControl()


async def test_a_reader_that_falls_behind_closes_it_and_opens_it_again(pipe: FlowControl) -> None:
    flow = PacedFlowControl(pipe)
    flow.pause_reading()
    assert not pipe.is_open
    flow.resume_reading()
    assert pipe.is_open


async def test_a_rest_closes_it_until_it_is_over(pipe: FlowControl) -> None:
    flow = PacedFlowControl(pipe)
    flow.throttle(0.01)
    assert not pipe.is_open
    await until(lambda: pipe.is_open)


async def test_it_stays_closed_while_it_rests_though_its_reader_has_caught_up(pipe: FlowControl) -> None:
    flow = PacedFlowControl(pipe)
    flow.throttle(LONG)
    flow.pause_reading()
    flow.resume_reading()
    assert not pipe.is_open


async def test_it_stays_closed_while_its_reader_is_behind_though_it_has_rested(pipe: FlowControl) -> None:
    flow, rested = PacedFlowControl(pipe), asyncio.Event()
    flow.pause_reading()
    flow.throttle(0.0)
    _soon(rested.set)
    await rested.wait()
    assert not pipe.is_open
    flow.resume_reading()
    assert pipe.is_open


async def test_resting_twice_is_resting_once(pipe: FlowControl) -> None:
    flow = PacedFlowControl(pipe)
    flow.throttle(0.01)
    flow.throttle(LONG)
    await until(lambda: pipe.is_open)


@pytest.mark.parametrize(("length", "is_read_on"), [(1000, True), (1_000_000, False)])
async def test_after_a_long_message_the_pipe_rests_for_what_it_takes_to_parse(length: int, is_read_on: bool) -> None:
    process = FedProcess()
    transport = ProcessTransport(process, has_fast_path=False)  # type: ignore[arg-type]
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * length}}
    with transport.reader(transport._flow, lambda _: None) as reader:
        reader.feed([json.dumps(note).encode()])
        await reader.receive()
        assert process.is_open is is_read_on
        await until(lambda: process.is_open)


async def test_a_server_that_asks_too_fast_is_read_more_slowly_and_only_a_flood_is_dropped() -> None:
    process = FedProcess()
    transport = ProcessTransport(process, has_fast_path=False)  # type: ignore[arg-type]
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="roots/list")
    assert all(transport.admits(request) for _ in range(1000))
    assert process.is_open
    assert all(transport.admits(request) for _ in range(40))
    assert not process.is_open
    assert not all(transport.admits(request) for _ in range(1000))
    assert 0 < transport.counters.dropped_notifications < 1000
    await until(lambda: process.is_open)


LONG_TEXT = "x" * 5_000_000


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ('{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "LONG"}}', False),
        ('{"jsonrpc":"2.0","params":{"data":"LONG"},"method":"notifications/message"}', False),
        ('{"method":"notifications/message","params":{"data":"LONG"}}', False),
        ('{"jsonrpc":"2.0","id":7,"method":"roots/list","params":{"_meta":{"x":"LONG"}}}', False),
        ('{"jsonrpc":"2.0","id":"x","params":{"_meta":{"x":"LONG"}},"method":"roots/list"}', False),
        ('{"jsonrpc":"2.0","id":7,"result":{"method":"LONG"}}', True),
        ('{"result":{"params":"LONG"},"jsonrpc":"2.0","id":7}', True),
        ('{"jsonrpc":"2.0","error":{"code":1,"message":"LONG"},"id":7}', True),
    ],
)
async def test_what_is_no_answer_and_longer_than_4_mib_is_dropped(line: str, is_read: bool) -> None:
    transport = ProcessTransport(FedProcess(), has_fast_path=False)  # type: ignore[arg-type]
    text = line.replace("LONG", LONG_TEXT).encode()
    assert transport._without_excess([b"{}", text]) == ([b"{}", text] if is_read else [b"{}"])
    assert transport._without_excess([text]) == ([text] if is_read else [])
    assert transport.counters.dropped_notifications == (0 if is_read else 2)


def _soon(call: Callable[[], None]) -> None:
    """After what was scheduled before."""
    asyncio.get_running_loop().call_later(0.01, call)
