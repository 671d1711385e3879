"""Random calls, and what is left of them: nothing may be.

    python -m benchmarks.random_calls [--calls N] [--json FILE]

Clients of both eras, on pipes and over HTTP, call servers of both eras, on pipes and over HTTP, all in this process,
whose counters can so be looked at: plain calls, calls with progress, log messages, questions and errors, calls that are
cancelled, and rounds that nobody continues; servers die and clients leave at any moment. Each answer must be the call's
own, or an error that names its server. Afterwards every counter of the aggregator must be back at 0, and memory flat.
Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from support.harness import config, connected, lean, talking
from support.memory import Scripts, build_aggregator, scripted
from support.serving import Served, served
from support.talking_server import TalkingServer, talking_server
from support.wire import EVERYTHING, Message, RawClient, text_of
from support.wire_http import HttpClient

from benchmarks.soak import is_flat
from fastmcp_aggregator import Aggregator
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.timings import Timings
from fastmcp_aggregator.policies.policy import Policy

SERVERS = {
    "lean": lean(),
    "old": talking(),
    "new": talking(era="modern"),
    "both": talking(era="both"),
}
REMOTE = {"far": "legacy", "farther": "modern"}
"""Servers over HTTP, and their eras."""
CALLED = [*SERVERS] * 4 + [*REMOTE]
"""Each as often as it is called: those over HTTP take longer."""
PIPES, HTTPS = 12, 3
"""Callers, each with a client of its own."""
BURSTS = {"pipe": 12, "http": 2}
"""Plain calls that a client makes at once."""
GATE = ("requests", "running", "body_bytes", "unread_bytes")
"""What requests share that pass the gate."""
HEARD = ("notifications", "requests", "answers_outside")
"""What a talking child keeps of what it hears."""
QUESTION = {"ask": {"x": {"method": "roots/list"}}}
LOGGED = {"say": "notifications/message", "params": {"level": "error", "data": "x"}}
WEIGHTS = {
    "plain": 100,
    "talk": 12,
    "ask": 8,
    "leave_round": 2,
    "cancel": 12,
    "fail": 4,
    "list": 4,
    "die": 1,
    "leave": 2,
}


@dataclass
class Report:
    """What happened. `left` are the counters that are not 0 at the end."""

    calls: int = 0
    answered: int = 0
    failed_with_their_server: int = 0
    cancelled: int = 0
    questions: int = 0
    deaths: int = 0
    departures: int = 0
    lost: int = 0
    wrong: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    paths: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    memory_mb: list[float] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost or wrong, nothing is held, and nothing has grown."""
        return not (self.lost or self.wrong or self.left) and is_flat(self.memory_mb)


class Open(Policy):
    """Counts the calls that it has let pass and not been told the end of."""

    count = 0

    def before(self, call: Any) -> None:
        self.count += 1

    def after(self, call: Any, end: Any) -> None:
        self.count -= 1


class Run:
    """One run."""

    def __init__(
        self,
        app: Aggregator,
        scripts: Scripts,
        remote: Sequence[TalkingServer],
        front: Served,
        report: Report,
        calls: int,
    ) -> None:
        self.app = app
        self.scripts = scripts
        self.remote = remote
        self.front = front
        self.report = report
        self.most = calls
        self._nonces = itertools.count()

    async def caller(self, number: int) -> None:
        """Call with one client after the other, until enough calls are made."""
        while self.report.calls < self.most:
            async with AsyncExitStack() as stack:
                client = await self._client(number, stack)
                client.ignored = frozenset({"notifications/message", "notifications/progress"})
                client.on_question = self._answer
                while self.report.calls < self.most and await self._act(client):
                    self._forget(client)
                self.report.departures += 1

    async def _client(self, number: int, stack: AsyncExitStack) -> RawClient:
        about: dict[str, Any] = {"modern": random.random() < 0.5}
        if random.random() < 0.5:
            about["capabilities"] = EVERYTHING
        if number < PIPES:
            return await stack.enter_async_context(connected(self.app, **about))
        client = HttpClient(self.front.url, name="random", **about)
        stack.push_async_callback(client.close)
        await client.start()
        return client

    def _answer(self, method: str, params: Message) -> Message:
        self.report.questions += 1
        return {"result": {"roots": []}}

    async def _act(self, client: RawClient) -> bool:
        """One thing; whether the client stays."""
        action = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        acting = getattr(self, f"_{action}")(client, random.choice(CALLED))
        try:
            async with asyncio.timeout(60):
                return await acting is not False
        except TimeoutError:
            self.report.lost += 1
            return False

    async def _plain(self, client: RawClient, server: str) -> None:
        begun = []
        for nonce in itertools.islice(self._nonces, BURSTS["http" if isinstance(client, HttpClient) else "pipe"]):
            self.report.calls += 1
            params = {"name": f"{server}:echo", "arguments": {"nonce": nonce}}
            begun.append((nonce, client.begin("tools/call", params)[1]))
        for nonce, answer in begun:
            if (result := self._result(await answer)) is not None:
                self.report.wrong += text_of(result)["arguments"] != {"nonce": nonce}

    async def _talk(self, client: RawClient, server: str) -> None:
        await self._play(client, server, {"progress": [1]}, LOGGED, {"progress": [2]})

    async def _ask(self, client: RawClient, server: str) -> None:
        await self._play(client, server, {"progress": [1]}, QUESTION, LOGGED)

    async def _leave_round(self, client: RawClient, server: str) -> None:
        """A modern client does not come back with its answer."""
        self.report.calls += 1
        self._result(await client.send("tools/call", self._script(server, QUESTION)))

    async def _fail(self, client: RawClient, server: str) -> None:
        await self._play(client, server, {"fail": {"code": -5, "message": "on purpose"}})

    async def _list(self, client: RawClient, server: str) -> None:
        self.report.calls += 1
        self._result(await client.send("tools/list"))

    async def _cancel(self, client: RawClient, server: str) -> None:
        steps = random.choice([[{"wait": "gate"}], [QUESTION, {"wait": "gate"}], [LOGGED, {"wait": "gate"}], []])
        request_id, answer = self._begin(client, server, *steps)
        for _ in range(random.randrange(30)):
            await asyncio.sleep(0)
        self.report.cancelled += 1
        if client.is_modern and isinstance(client, HttpClient):
            client.hang_up(request_id)
        else:
            client.notify("notifications/cancelled", {"requestId": request_id})
        answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())

    async def _die(self, client: RawClient, _: str) -> None:
        server = random.choice([*SERVERS])
        script = self.scripts[server]
        begun = [self._begin(client, server)[1] for _ in range(5)]
        for _ in range(random.randrange(5)):
            await asyncio.sleep(0)
        self.report.deaths += 1
        script.life.die()
        script.lives[:-2] = [life for life in script.lives[:-2] if life.code is None]
        for answer in begun:
            self._result(await answer)

    async def _leave(self, client: RawClient, server: str) -> bool:
        """The client closes its connection over calls in flight."""
        for steps in ([{"wait": "gate"}], [QUESTION], [LOGGED], []):
            self._begin(client, server, *steps)
        for _ in range(random.randrange(30)):
            await asyncio.sleep(0)
        return False

    async def _play(self, client: RawClient, server: str, *steps: Message) -> None:
        self.report.calls += 1
        params = {**self._script(server, *steps), "_meta": {"progressToken": next(self._nonces)}}
        self._result(await client.converse("tools/call", params))

    def _begin(self, client: RawClient, server: str, *steps: Message) -> tuple[Any, asyncio.Future[Message]]:
        self.report.calls += 1
        return client.begin("tools/call", self._script(server, *steps))

    @staticmethod
    def _script(server: str, *steps: Message) -> Message:
        if server == "lean":  # it knows no scripts
            return {"name": "lean:echo", "arguments": {}}
        return {"name": f"{server}:play", "arguments": {"script": steps}}

    def _result(self, answer: Message) -> Message | None:
        """The result of an answer, which is counted."""
        if "result" in answer:
            self.report.answered += 1
            result: Message = answer["result"]
            return result
        message = answer["error"]["message"]
        is_known = message.startswith(("server '", "on purpose", "roots/list: the client does not support", "Missing"))
        self.report.failed_with_their_server += is_known
        if not is_known:
            self.report.wrong += 1
            self.report.errors[message] = self.report.errors.get(message, 0) + 1
        return None

    def _forget(self, client: RawClient) -> None:
        """Keep nothing of what has come: the memory that is measured is this process's."""
        for kept in (client.questions, client.notifications, client.messages):
            kept.clear()
        if isinstance(client, HttpClient):
            client.streams.clear()
            client.statuses.clear()
            for key in [key for key, post in client._posts.items() if post.done()]:
                del client._posts[key]
        else:
            client.lines.clear()  # type: ignore[attr-defined]
        lives = [life for script in self.scripts.values() for life in script.lives]
        servers = [life.child for life in lives] + [talk for server in self.remote for talk in server.children.values()]
        heard = [kept for life in lives for kept in (life.received, life.stderr)]
        heard += [server.requests for server in self.remote]
        heard += [vars(server)[name] for server in servers for name in HEARD if name in vars(server)]
        for kept in heard:
            kept.clear()


def counters(app: Aggregator, opened: Open) -> dict[str, int]:
    """Everything that counts what is under way."""
    backend, pipeline = app._backend, app._pipeline
    runtime = backend.runtime
    assert runtime is not None
    found = {
        "requests in flight": pipeline.in_flight._count,
        "cancellable calls": len(pipeline.fast_path._cancellable),
        "admissions": opened.count,
        "requests at the gate": sum(backend.admission.counts()),
        "waiting at the gate": len(backend.admission.slots._waiting),
        **{f"{what} at the gate": backend.admission.usage()[what].taken for what in GATE},
        "pending calls": len(runtime.rounds._pending._pending),
    }
    children: list[Child] = [*runtime.children.values(), *(child for child, _ in runtime.instances)]
    for child in children:
        calls, session = child.calls, child.session
        of_child = {
            "slots": calls.in_flight + calls.waiting + len(calls._limiter.slots._held) + len(calls._limiter._waiting),
            "queue": calls._queue.taken,
            "callers": 0 if session is None else len(session._requests._in_flight),
        }
        if session is not None:
            of_child["direct requests"] = session.direct.count
        found |= {f"{name} of {child.instance_id}": count for name, count in of_child.items()}
    return found


async def in_flight_by_metrics(app: Aggregator) -> int:
    """What the metrics say is in flight."""
    rendered = await app.rendered_metrics()
    assert rendered is not None
    lines = [line for line in rendered[0].decode().splitlines() if "in_flight{" in line or "waiting{" in line]
    return int(sum(float(line.split()[-1]) for line in lines))


async def watch(report: Report, most: int) -> None:
    """Sample the memory, and tell how far it is."""
    process = psutil.Process()
    while True:
        await asyncio.sleep(5)
        report.memory_mb.append(round(process.memory_info().rss / 1024**2, 1))
        print(f"{report.calls} of {most} calls, {report.memory_mb[-1]} MB", flush=True)


async def run(calls: int) -> Report:
    """Run it."""
    report, opened = Report(), Open()
    stack = AsyncExitStack()
    remote = [await stack.enter_async_context(talking_server(era=era)) for era in REMOTE.values()]
    entries = {key: server.entry for key, server in zip(REMOTE, remote, strict=True)}
    app = build_aggregator(config(**SERVERS, **entries), metrics=True, call_timeout=20.0)
    timings = Timings(
        first_ceiling=0.02, last_ceiling=0.05, crash_loop=10**9, failures_to_open=10**9, pending_timeout=2.0
    )
    scripts = scripted(app, timings)
    policies = app._backend.policies.stack
    policies.policies = (opened, *policies.policies)
    began = time.monotonic()
    async with stack, app, served(app) as front:
        each = Run(app, scripts, remote, front, report, calls)
        watching = asyncio.create_task(watch(report, calls))
        await asyncio.gather(*(each.caller(number) for number in range(PIPES + HTTPS)))
        watching.cancel()
        report.seconds = round(time.monotonic() - began, 1)
        for _ in range(300):
            if not any(counters(app, opened).values()):
                break
            await asyncio.sleep(0.1)
        report.left = {name: count for name, count in counters(app, opened).items() if count}
        if count := await in_flight_by_metrics(app):
            report.left["metrics in flight"] = count
        samples = app._backend.path_counts.samples()
        report.paths = {f"{outcome} {reason}".strip(): count for outcome, reason, count in samples}
    return report


def main() -> None:
    """Run it, print what happened, write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10**6)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    print("seed", arguments.seed)
    report = asyncio.run(run(arguments.calls))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(asdict(report), indent=2) + "\n")
    for name, value in asdict(report).items():
        print(f"{name:26}", f"{value[0]} … {value[-1]}" if isinstance(value, list) and value else value)
    print("clean" if report.is_clean else "NOT CLEAN")
    sys.exit(not report.is_clean)


if __name__ == "__main__":
    main()
