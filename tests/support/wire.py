"""Raw clients of an MCP server: they speak JSON, in either era, over a pipe here and over HTTP in `wire_http.py`.

What a server asks, in whichever way, goes to `on_question`; everything that a client hears is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastmcp_aggregator.protocol.methods import capabilities_of

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
PATIENCE = 55.0
"""Seconds after which a test that waits for something gives up; nothing depends on how fast it comes. Less than what a
call may take by default, so that nothing that is to wait for no call passes by waiting for one.
"""
META = "io.modelcontextprotocol/"
ELSEWHERE = {"x-forwarded-for": "192.0.2.9"}
"""The headers of a request from another machine, as a proxy passes it on."""

Message = dict[str, Any]
EVERYTHING: Message = capabilities_of("client")
"""The capabilities of a client that can be asked anything, and tells when its roots change."""
Answer = Callable[[str, Message], Message | None]
"""From a question's method and parameters to the response: `{"result": …}` or `{"error": …}`; None: given later."""


async def until(condition: Callable[[], Any]) -> Any:
    """Wait until the condition holds; its value."""
    delay = 0.0005
    async with asyncio.timeout(PATIENCE):
        while not (value := condition()):
            await asyncio.sleep(delay)
            delay = min(2 * delay, 0.005)
        return value


async def until_answered(ask: Callable[[], Awaitable[Any]], is_right: Callable[[Any], Any]) -> Any:
    """Ask again and again until the answer is right; the answer."""
    async with asyncio.timeout(PATIENCE):
        while not is_right(answer := await ask()):
            await asyncio.sleep(0.005)
        return answer


class RawClient:
    """A client; answers come by id, everything else in order. `write` is the transport's."""

    def __init__(self, *, modern: bool, name: str, capabilities: Message | None = None, version: str = LEGACY) -> None:
        """`version` is the one that a legacy client offers."""
        self.is_modern = modern
        self.capabilities = capabilities or {}
        self.on_question: Answer = lambda method, params: None
        self.questions: list[Message] = []
        """What the server has asked, each with `method` and `params`; its requests have an `id`."""
        self.notifications: list[Message] = []
        self.messages: list[Message] = []
        """Everything that came, in its order."""
        self.ignored: frozenset[str] = frozenset()
        """The methods of notifications that are not kept."""
        self.introduction: Message = {}
        self._name = name
        self._version = version
        self._next_id = 0
        self._waiting: dict[Any, asyncio.Future[Message]] = {}

    async def start(self) -> None:
        """Do the handshake of the client's era."""
        if self.is_modern:
            self.introduction = await self.result("server/discover")
            return
        params = {
            "protocolVersion": self._version,
            "capabilities": self.capabilities,
            "clientInfo": {"name": self._name, "version": "1"},
        }
        self.introduction = await self.result("initialize", params)
        self.notify("notifications/initialized")

    # Asking.

    async def send(self, method: str, params: Message | None = None) -> Message:
        """A request; the whole response, result or error."""
        return await asyncio.wait_for(self.begin(method, params)[1], PATIENCE)

    async def result(self, method: str, params: Message | None = None) -> Message:
        """A request that succeeds; its result."""
        response = await self.send(method, params)
        assert "result" in response, response
        return response["result"]

    async def error(self, method: str, params: Message | None = None) -> Message:
        """A request that fails; its error."""
        response = await self.send(method, params)
        assert "error" in response, response
        return response["error"]

    def begin(self, method: str, params: Message | None = None) -> tuple[int, asyncio.Future[Message]]:
        """A request whose response is awaited later."""
        self._next_id += 1
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[self._next_id] = future
        self.write({"id": self._next_id, "method": method, "params": self._enveloped(params)})
        return self._next_id, future

    def notify(self, method: str, params: Message | None = None) -> None:
        """A notification."""
        self.write({"method": method, **({"params": params} if params is not None else {})})

    def write(self, message: Message) -> None:
        """Any message."""
        raise NotImplementedError

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """A tool call; the JSON in its first text block."""
        return text_of(await self.result("tools/call", {"name": name, "arguments": arguments}))

    async def names(self, method: str = "tools/list") -> list[str]:
        """The names of what a list method lists."""
        result = await self.result(method)
        key = "resourceTemplates" if "templates" in method else method.partition("/")[0]
        return [item.get("uri") or item.get("uriTemplate") or item["name"] for item in result[key]]

    # Being asked.

    async def converse(self, method: str, params: Message) -> Message:
        """A request, with all the rounds that it takes to answer the server's questions; the whole response."""
        response = await self.send(method, params)
        while (result := response.get("result", {})).get("resultType") == "input_required":
            params = {name: value for name, value in params.items() if name not in ("inputResponses", "requestState")}
            response = await self.send(method, {**params, **self.answers(result)})
        return response

    async def play(self, server: str, *script: Message, **meta: Any) -> Any:
        """Let a talking child play a script, and answer it; what it brought."""
        params: Message = {"name": f"{server}:play", "arguments": {"script": script}}
        response = await self.converse("tools/call", {**params, **({"_meta": meta} if meta else {})})
        assert "result" in response, response
        return text_of(response["result"])

    async def report(self, server: str, is_right: Callable[[Message], Any] = bool) -> Message:
        """What a talking child reports, once that is right."""
        report: Message = await until_answered(lambda: self.call(f"{server}:report"), is_right)
        return report

    def answers(self, result: Message) -> Message:
        """What a modern client adds to a request that was answered with questions: its answers to them."""
        given: Message = {}
        for name, question in result.get("inputRequests", {}).items():
            self.questions.append(question)
            answer = self.on_question(question["method"], question.get("params", {}))
            if answer is not None:
                given[name] = answer["result"]
        state = {"requestState": result["requestState"]} if "requestState" in result else {}
        return {"inputResponses": given, **state}

    async def question(self, method: str) -> Message:
        """The first question of this method, when it has come; it is taken off the list."""
        return await self._first_of(self.questions, method)

    async def heard(self, method: str) -> Message:
        """The first notification of this method, when it has come; it is taken off the list."""
        return await self._first_of(self.notifications, method)

    def forget(self) -> None:
        """Begin anew: as if nothing had come yet, and nothing were to be answered."""
        self.on_question = lambda method, params: None
        for kept in (self.questions, self.notifications, self.messages):
            kept.clear()

    async def close(self) -> None:
        """End the connection."""

    @staticmethod
    async def _first_of(messages: list[Message], method: str) -> Message:
        found: Message = await until(lambda: next((m for m in messages if m["method"] == method), None))
        messages.remove(found)
        return found

    def _enveloped(self, params: Message | None) -> Message:
        if not self.is_modern:
            return params or {}
        params = dict(params or {})
        params["_meta"] = {
            f"{META}protocolVersion": MODERN,
            f"{META}clientInfo": {"name": self._name, "version": "1"},
            f"{META}clientCapabilities": self.capabilities,
            **params.get("_meta", {}),
        }
        return params

    def _received(self, message: Message) -> None:
        if message.get("method") in self.ignored:
            return
        self.messages.append(message)
        waiting = self._waiting.pop(message.get("id"), None) if "method" not in message else None
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(message)
        elif "method" in message and "id" in message:
            self.questions.append(message)
            answer = self.on_question(message["method"], message.get("params", {}))
            if answer is not None:
                self.write({"id": message["id"], **answer})
        else:
            self.notifications.append(message)


class PipeClient(RawClient):
    """A client over byte streams."""

    def __init__(self, reader: asyncio.StreamReader, write: Callable[[bytes], None], **about: Any) -> None:
        super().__init__(**about)
        self._reader = reader
        self._write = write
        self.lines: list[bytes] = []
        self._reading = asyncio.create_task(self._read())

    def write(self, message: Message) -> None:
        self._write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        while line := await self._reader.readline():
            self.lines.append(line)
            self._received(json.loads(line))


def text_of(result: Message) -> Any:
    """The JSON in the first text block of a result."""
    return json.loads(result["content"][0]["text"])
