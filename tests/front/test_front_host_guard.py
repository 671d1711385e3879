"""The check of Host and Origin: FastMCP's own, which is asked once for each Host that it lets in."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from fastmcp.server.http import HostOriginGuardMiddleware

from fastmcp_aggregator.front.http.security import HostGuard

SERVER = ("127.0.0.1", 8000)
HOST = (b"host", b"localhost:8000")


class Behind:
    """What is behind the guard, and what the client gets."""

    def __init__(self) -> None:
        self.reached = 0
        self.status: int | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached += 1
        self.status = 200

    async def receive(self) -> Any:
        raise AssertionError("the body is nobody's business")

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)

    async def status_of(self, guard: Any, *headers: tuple[bytes, bytes], server: Any = SERVER) -> int | None:
        """How a request with these headers is answered."""
        scope = {"type": "http", "method": "POST", "path": "/", "scheme": "http", "headers": [*headers]}
        await guard({**scope, "server": server}, self.receive, self.send)
        return self.status


def our_guard(behind: Behind, **options: Any) -> HostGuard:
    return HostGuard(behind, {"mode": "auto", **options}, (), lambda *_: None)


class Reads(MutableMapping[str, Any]):
    """A scope that tells what was looked up in it."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self._scope = scope
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return self._scope[name]

    def __setitem__(self, name: str, value: Any) -> None:
        assert (name, value) == ("headers", self._scope["headers"])  # Starlette makes a list of them

    def __delitem__(self, name: str) -> None:
        raise AssertionError("the guard changes nothing")

    def __iter__(self) -> Iterator[str]:
        return iter(self._scope)

    def __len__(self) -> int:
        return len(self._scope)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that FastMCP's own check has seen."""
    seen: list[Any] = []
    check = HostOriginGuardMiddleware.__call__

    async def counted(self: Any, scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        await check(self, scope, receive, send)

    monkeypatch.setattr(HostOriginGuardMiddleware, "__call__", counted)
    return seen


async def test_a_host_that_was_let_in_is_let_in_without_asking(asked: list[Any]) -> None:
    behind = Behind()
    guard = our_guard(behind)
    for _ in range(3):
        assert await behind.status_of(guard, HOST, (b"accept", b"*/*")) == 200
    assert (behind.reached, len(asked)) == (3, 1)


async def test_all_others_are_asked_about_each_time(asked: list[Any]) -> None:
    behind = Behind()
    guard = our_guard(behind)
    assert await behind.status_of(guard, HOST) == 200
    for headers in (
        [(b"host", b"evil.example")],
        [HOST, (b"host", b"evil.example")],
        [(b"host", b"evil.example"), HOST],
        [HOST, (b"origin", b"https://evil.example")],
    ):
        expected = await behind.status_of(HostOriginGuardMiddleware(behind, mode="auto"), *headers)
        if [name for name, _ in headers].count(b"host") > 1 and expected == 200:
            expected = 400  # it looks at the first
        before = len(asked)
        assert [await behind.status_of(guard, *headers) for _ in range(2)] == [expected] * 2
        assert len(asked) == before + 2
    assert await behind.status_of(guard, (b"host", b"evil.example")) == 421
    assert await behind.status_of(guard, (b"host", b"[::1].evil.example")) == 421
    assert await behind.status_of(guard, (b"host", b"[::1]:8000")) == 200
    assert await behind.status_of(guard, HOST, (b"origin", b"https://evil.example")) == 403
    assert await behind.status_of(guard) == 421


@pytest.mark.parametrize(
    ("site", "dest", "status"),
    [
        (b"cross-site", b"image", 403),
        (b"same-site", b"script", 403),
        (b"cross-site", b"iframe", 403),
        (b"cross-site", b"empty", 403),
        (b"odd", b"empty", 403),
        (b"cross-site", b"document", 200),
        (b"same-origin", b"empty", 200),
        (b"none", b"document", 200),
    ],
)
async def test_what_a_page_of_another_origin_asks_for_without_an_origin_is_refused(
    site: bytes, dest: bytes, status: int
) -> None:
    behind = Behind()
    guard = our_guard(behind)
    assert await behind.status_of(guard, HOST) == 200
    told = (b"sec-fetch-site", site), (b"sec-fetch-dest", dest)
    assert await behind.status_of(guard, HOST, *told) == status
    for origins, origin in (((), b"http://localhost:8000"), (("https://a.example",), b"https://a.example")):
        allowing = HostGuard(behind, {"mode": "auto", "allowed_origins": origins}, origins, lambda *_: None)
        assert await behind.status_of(allowing, HOST, *told, (b"origin", origin)) == 200


async def test_a_host_is_let_in_at_the_address_where_it_was(asked: list[Any]) -> None:
    behind = Behind()
    guard = our_guard(behind)
    named = (b"host", b"hub.example")
    assert await behind.status_of(guard, named, server=("192.0.2.1", 80)) == 200
    assert await behind.status_of(guard, named, server=SERVER) == 421
    assert len(asked) == 2


async def test_the_hosts_that_are_known_are_bounded(asked: list[Any]) -> None:
    behind = Behind()
    guard = our_guard(behind, allowed_hosts=["*"])
    for number in range(1500):
        assert await behind.status_of(guard, (b"host", b"h%d" % number)) == 200
    assert len(guard._known) == 1000
    assert await behind.status_of(guard, (b"host", b"h1499")) == 200


@pytest.mark.parametrize("mode", ["auto", "strict"])
@pytest.mark.parametrize("hosts", [None, ["hub.example"]])
async def test_fastmcp_looks_at_nothing_else_of_a_request_without_an_origin(mode: Any, hosts: Any) -> None:
    for host in (b"localhost:8000", b"hub.example"):
        headers = [(b"host", host), (b"authorization", b"Bearer x")]
        scope = Reads({"type": "http", "method": "POST", "path": "/", "headers": headers, "server": SERVER})
        behind = Behind()
        guard = HostOriginGuardMiddleware(behind, mode=mode, allowed_hosts=hosts)
        await guard(scope, behind.receive, behind.send)
        assert scope.names <= {"type", "headers", "server", "scheme"}
