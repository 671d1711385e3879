"""Both sides of every comparison: a client of an aggregator, and clients of the servers themselves.

The servers behind the aggregator and the direct ones are processes of their own. They are sent the same requests, in
the same order, so that their states agree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from real_answers import Event, Message, canonical, events, public, public_address
from real_fronts import Front
from real_requests import Asked
from real_servers import Place
from support.wire import META, RawClient, until
from support.wire_http import HttpClient

_ROOTS_READERS = {
    "everything": "echo",
    "filesystem": "list_allowed_directories",
    "filesystem-other": "list_allowed_directories",
}
"""The servers that want the client's roots as soon as they start, each with a tool that is harmless."""


@dataclass(frozen=True)
class Talk:
    """A client in the words of one server, which it talks to itself or through an aggregator."""

    client: RawClient
    server_key: str
    is_public: bool
    place: Place

    def name(self, original: str) -> str:
        return f"{self.server_key}:{original}" if self.is_public else original

    def address(self, original: str) -> str:
        return public_address(self.server_key, original) if self.is_public else original

    def params(self, asked: Asked) -> Message:
        """The request's parameters for the one whom this client talks to."""
        rest = self.place.filled(asked.rest)
        if asked.method == "resources/read":
            return {"uri": self.address(asked.target), **rest}
        if asked.method != "completion/complete":
            return {"name": self.name(asked.target), **rest}
        if "://" in asked.target:
            return {"ref": {"type": "ref/resource", "uri": self.address(asked.target)}, **rest}
        return {"ref": {"type": "ref/prompt", "name": self.name(asked.target)}, **rest}

    async def ask(self, asked: Asked, **meta: Any) -> Message:
        """The response, after all questions that the server has first."""
        return await self.client.converse(asked.method, {**self.params(asked), **({"_meta": meta} if meta else {})})

    async def heard(self, scene: Callable[[Talk], Awaitable[Any]]) -> list[Event]:
        """What the client hears while a scene is played, in public names."""
        before = len(self.client.messages)
        await scene(self)
        heard = list(events(self.client.messages[before:]))
        return heard if self.is_public else public(self.server_key, heard)

    @contextmanager
    def answering(self, **answers: Message) -> Iterator[None]:
        """For a while, let the client answer these: `{"result": …}` or `{"error": …}` by a method's first word."""
        usual = self.client.on_question
        self.client.on_question = lambda method, params: answers.get(method.split("/")[0]) or usual(method, params)
        try:
            yield
        finally:
            self.client.on_question = usual

    async def want_logs(self, level: str) -> Message:
        """Let the server log from this level on; what is to be in the `_meta` of each request for that."""
        if self.client.is_modern:
            return {f"{META}logLevel": level}
        await self.client.result("logging/setLevel", {"level": level})
        return {}

    async def follow(self, uri: str) -> Callable[[], Awaitable[Any]]:
        """Let the client be told when a resource changes; what ends that."""
        address = self.address(uri)
        if not self.client.is_modern:
            await self.client.result("resources/subscribe", {"uri": address})
            return lambda: self.client.result("resources/unsubscribe", {"uri": address})
        stream, _ = self.client.begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": [address]}})
        await self.client.heard("notifications/subscriptions/acknowledged")

        async def leave() -> None:
            self.cancel(stream)

        return leave

    def cancel(self, request_id: int) -> None:
        """Give a request up, in the way of the client's era and transport."""
        if self.client.is_modern and isinstance(self.client, HttpClient):
            self.client.hang_up(request_id)
        else:
            self.client.notify("notifications/cancelled", {"requestId": request_id, "reason": "no longer needed"})


@dataclass(frozen=True)
class Both:
    """A client of an aggregator, and a client of each of its servers."""

    kind: Front
    place: Place
    front: RawClient
    direct: dict[str, RawClient]

    def talks(self, server_key: str) -> tuple[Talk, Talk]:
        """The same server, through the aggregator and directly."""
        return (
            Talk(self.front, server_key, True, self.place),
            Talk(self.direct[server_key], server_key, False, self.place),
        )

    @property
    def roots_readers(self) -> list[str]:
        """The servers that want the client's roots."""
        return [key for key in _ROOTS_READERS if key in self.direct]

    def sequence(self, heard: list[Event]) -> str:
        """What was heard, for comparison. Over HTTP, updates and answers come on two streams, in no common order."""
        if self.kind.transport == "http":
            heard = sorted(heard, key=lambda event: event[1] == "notifications/resources/updated")
        return canonical(heard)


async def let_them_settle(both: Both, said: Callable[[], str]) -> None:
    """Wait until the servers that want the client's roots at once have got them, or were told that nobody can be asked.

    `said` is what the aggregator has written to stderr.
    """
    if not both.kind.is_askable:
        return
    for key in both.roots_readers:
        await _got_roots(both.direct[key], [key])
    if both.kind.is_resident:
        for key in both.roots_readers:
            harmless = {"name": f"{key}:{_ROOTS_READERS[key]}", "arguments": {"message": ""}}
            await both.front.result("tools/call", harmless)
        await _got_roots(both.front, both.roots_readers)
    else:
        refused = "asked roots/list, and it cannot be determined for which client"
        await until(lambda: said().count(refused) == len(both.roots_readers))


async def _got_roots(client: RawClient, keys: list[str]) -> None:
    def heard(method: str) -> int:
        return sum(message.get("method") == method for message in client.messages)

    await until(lambda: heard("roots/list") == len(keys) and heard("notifications/message") == ("everything" in keys))
