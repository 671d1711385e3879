"""Doubles: what the package's objects need, without the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.call import Call
from fastmcp_aggregator.callers.caller import trace_of
from fastmcp_aggregator.catalogue.snapshot import SPECS, Catalogue, Kind
from fastmcp_aggregator.children.calls import Calls
from fastmcp_aggregator.children.timings import DEFAULT_TIMINGS
from fastmcp_aggregator.config import StdioServer
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.isolation.evidence import Evidence
from fastmcp_aggregator.policies.stack import PolicyStack
from fastmcp_aggregator.protocol.json_rpc import Result
from fastmcp_aggregator.routing.target import Target
from fastmcp_aggregator.settings.model import load_settings
from fastmcp_aggregator.settings.options import ChildOptions


class Clock:
    """Monotonic seconds, which pass when `now` is set."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class NoFlowControl:
    """That of what can be read at any pace."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class FlowControl:
    """A pipe's, which notes what its reader asks."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @property
    def is_open(self) -> bool:
        return self.asked[-1:] != ["pause"]

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")


class FedProcess(FlowControl):
    """A process that has been started, and whose pipe is fed and ended by hand."""

    server_key = "a"
    write: Callable[[list[bytes]], None]
    end: Callable[[], None]

    def attach(self, on_lines: Callable[[list[bytes]], None], on_end: Callable[[], None], _: object) -> None:
        self.write, self.end = on_lines, on_end


def subscribable_child(key: str, instance_id: Hashable) -> Any:
    """A child of the legacy era that takes every subscription."""

    async def request(*_: Any, **__: Any) -> dict[str, Any]:
        return {}

    session = SimpleNamespace(era="legacy", lost=asyncio.Event(), serves=lambda *_: None, request=request)

    async def found() -> Any:
        return session

    calls = SimpleNamespace(session=found, request=request)
    return SimpleNamespace(key=key, instance_id=instance_id, calls=calls)


@dataclass(eq=False)
class ListedChild:
    """What the route table looks at in a child."""

    key: str
    catalogue: Catalogue | None
    is_listed: bool = True


_SERVER = StdioServer(key="x", label="x", command="x")
_OPTIONS = ChildOptions.from_settings(load_settings(), _SERVER)


class SettlingChild(ListedChild):
    """What the directory looks at in a child; the test decides when it settles, and how."""

    def __init__(self, key: str) -> None:
        super().__init__(key, None, is_listed=False)
        self.settled = asyncio.Event()
        self.is_serving = False
        self.is_waking = self.waits_for_client = self.stands_for_instances = False
        self.evidence = Evidence(_SERVER, _OPTIONS, (), lambda _: None)
        self.last_failure: ChildServerError | None = None
        self.session = None
        self.retry_for_call_in = 4.0
        self.why_stopped = ""
        self.calls = Calls(self, _OPTIONS, DEFAULT_TIMINGS)  # type: ignore[arg-type]

    async def until_settled(self) -> None:
        await self.settled.wait()

    def wake(self) -> None: ...

    def trigger_retry(self) -> bool:
        return False

    def arrive(self, *tools: str, **others: Iterable[str]) -> None:
        components = {Kind.TOOL: tools, **{Kind(kind): ids for kind, ids in others.items()}}
        listed = {kind: tuple({SPECS[kind].id_field: id_} for id_ in ids) for kind, ids in components.items()}
        self.catalogue = Catalogue(1, listed)
        self.is_serving = self.is_listed = True
        self.last_failure = None
        self.settled.set()

    def fail(self) -> None:
        self.is_serving = self.is_listed = False
        self.last_failure = ChildServerError(self.key, "startup", "it exited with code 3")
        self.settled.set()


def call(
    principal: Principal | None = None,
    group: str = "default",
    method: str = "tools/call",
    server: str = "s",
    name: str = "t",
    params: Mapping[str, Any] | None = None,
    *,
    input_schema: Mapping[str, Any] | None = None,
    is_remote: bool = False,
    request_id: str = "",
    ref: Mapping[str, Any] | None = None,
) -> Call:
    """A call of a caller that nobody can reach."""
    caller: Any = SimpleNamespace(
        holder=None,
        principal=principal or Principal(),
        is_remote=is_remote,
        request_id=request_id,
        scope={},
        trace_id=trace_of((params or {}).get("_meta"), {}),
    )
    child: Any = SimpleNamespace(key=server)
    address = {"ref": ref} if ref is not None else {"uri" if method.startswith("resources/") else "name": name}
    return Call(caller, Target(child, address, input_schema=input_schema), method, params or {}, group)


async def run(stack: PolicyStack, call: Call, send: Callable[[Call], Awaitable[Result]]) -> Result:
    """The result of `send`, inside of the policies of a stack."""
    with await stack.admit(call):
        call.answer = await send(call)
    return call.answer
