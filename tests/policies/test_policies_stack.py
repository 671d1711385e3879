"""Policies around a call: who is asked, who is told what, and what each value of a call says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from support.doubles import call, run

from fastmcp_aggregator.access.principal import ANYONE, Principal
from fastmcp_aggregator.callers.call import Call, json_size
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.policies.policy import CallEnd, Rejected
from fastmcp_aggregator.policies.stack import PolicyStack

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"


def call_of(**fields: Any) -> Call:
    usual: dict[str, Any] = {"method": "tools/call", "name": "log", "params": {"name": "git:log", "arguments": {}}}
    return call(Principal(), "default", server="git", **{**usual, **fields})


class Witness:
    """A policy that writes down what happens to it."""

    def __init__(self, name: str, story: list[str], refusal: Rejected | None = None) -> None:
        self._name = name
        self._story = story
        self._refusal = refusal

    def before(self, call: Call) -> None:
        self._story.append(f"{self._name} before {call.name}")
        if self._refusal is not None:
            raise self._refusal

    def after(self, call: Call, end: CallEnd) -> None:
        self._story.append(f"{self._name} after {call.name}: {end.outcome}")


def raising(error: BaseException) -> Callable[[], Any]:
    async def forward(_: Any = None) -> dict[str, Any]:
        raise error

    return forward


def answering(result: dict[str, Any]) -> Callable[[], Any]:
    async def forward(_: Any = None) -> dict[str, Any]:
        return result

    return forward


class Ends:
    """A policy that keeps what came of each call."""

    def __init__(self) -> None:
        self.all: list[CallEnd] = []

    def before(self, call: Call) -> None: ...

    def after(self, call: Call, end: CallEnd) -> None:
        self.all.append(end)


async def test_policies_are_asked_from_the_outermost_and_told_from_the_innermost() -> None:
    story: list[str] = []
    stack = PolicyStack([Witness("outer", story), Witness("inner", story)])
    result = {"content": []}
    assert await run(stack, call_of(), answering(result)) is result
    assert story == ["outer before log", "inner before log", "inner after log: ok", "outer after log: ok"]


async def test_a_refusal_is_told_to_those_that_let_the_call_pass_and_nothing_is_forwarded() -> None:
    story: list[str] = []
    refusal = Rejected(-32001, "not you", retry_in=1.23456, data={"limit": 3})
    stack = PolicyStack([Witness("outer", story), Witness("strict", story, refusal), Witness("inner", story)])
    with pytest.raises(MCPError) as caught:
        await run(stack, call_of(), raising(AssertionError("was forwarded")))
    assert story == ["outer before log", "strict before log", "outer after log: denied"]
    assert caught.value.error.code == -32001
    assert caught.value.error.message == "not you"
    assert caught.value.error.data == {"limit": 3, "retryIn": 1.235}


async def test_a_policy_that_breaks_does_not_keep_the_others_from_being_told() -> None:
    class Broken(Ends):
        def after(self, call: Call, end: CallEnd) -> None:
            raise ZeroDivisionError

    outer = Ends()
    with pytest.raises(ZeroDivisionError):
        await run(PolicyStack([outer, Broken()]), call_of(), answering({}))
    assert [end.outcome for end in outer.all] == ["ok"]


@pytest.mark.parametrize(
    ("forward", "outcome", "code"),
    [
        (answering({"content": []}), "ok", None),
        (answering({"content": [], "isError": False}), "ok", None),
        (answering({"content": [], "isError": True}), "tool_error", None),
        (answering({"resultType": "input_required", "inputRequests": {}}), "input_required", None),
        (raising(MCPError(-32602, "no")), "error", -32602),
        (raising(ChildServerError("git", "runtime", "it exited")), "error", -32000),
        (raising(asyncio.CancelledError()), "cancelled", None),
        (raising(ZeroDivisionError()), "error", None),
    ],
)
async def test_policies_are_told_what_came_of_a_call(
    forward: Callable[[], Any], outcome: str, code: int | None
) -> None:
    ends = Ends()
    call = call_of()
    error: BaseException | None = None
    try:
        await run(PolicyStack([ends]), call, forward)
    except BaseException as raised:
        error = raised
    (end,) = ends.all
    assert (end.outcome, end.code) == (outcome, code)
    assert (error is None) == (outcome in ("ok", "tool_error", "input_required"))
    assert end.seconds >= 0


def test_an_empty_stack_is_false_so_that_a_call_can_go_without_it() -> None:
    assert not PolicyStack().policies
    assert PolicyStack([Ends()]).policies


def test_a_principal_may_use_its_groups_or_all() -> None:
    assert Principal().name == ANYONE
    assert Principal().may_use("any")
    assert Principal("ann", frozenset({"web"})).may_use("web")
    assert not Principal("ann", frozenset({"web"})).may_use("db")
    assert not Principal("ann", frozenset()).may_use("web")


@pytest.mark.parametrize(
    ("traceparent", "trace_id"),
    [
        (f"00-{TRACE}-{SPAN}-01", TRACE),
        (f"42-{TRACE}-{SPAN}-00-of-a-later-version", TRACE),
        (f"ff-{TRACE}-{SPAN}-01", ""),
        (f"00-{'0' * 32}-{SPAN}-01", ""),
        (f"00-{TRACE}-{'0' * 16}-01", ""),
        (f"00-{TRACE.upper()}-{SPAN}-01", ""),
        (f"00-{TRACE}-{SPAN}-01 {'x' * 9}", ""),
        ("", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_the_trace_of_a_call_is_the_one_that_its_client_tells(traceparent: Any, trace_id: str) -> None:
    assert call_of(params={"_meta": {"traceparent": traceparent}}).caller.trace_id == trace_id


@pytest.mark.parametrize("params", [{}, {"_meta": None}, {"_meta": []}])
def test_a_call_without_meta_has_no_trace(params: dict[str, Any]) -> None:
    assert call_of(params=params).caller.trace_id == ""


@pytest.mark.parametrize("value", [{}, {"name": "git:log", "arguments": {"a": [1, None, True, "é\n\u2028"]}}, "x"])
def test_a_size_is_that_of_the_json_text(value: Any) -> None:
    assert json_size(value) == len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


def test_what_has_no_utf8_has_a_size_too() -> None:
    assert json_size({"half": "\ud83d"}) == len('{"half":"\\ud83d"}')


def test_sizes_of_a_call_are_those_of_its_parameters_and_its_result() -> None:
    assert call_of(params={"name": "git:log"}).request_bytes == len('{"name":"git:log"}')
    assert CallEnd("ok", 0.1, result={"content": []}).response_bytes == len('{"content":[]}')
    assert CallEnd("error", 0.1).response_bytes == 0
