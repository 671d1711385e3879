"""The end of an HTTP server, as seen by its ASGI app."""

from __future__ import annotations

from typing import Any

from fastmcp_aggregator.front.http.boundary import Drain


async def test_a_stream_that_comes_after_all_others_were_cut_off_is_turned_away() -> None:
    said: list[Any] = []

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nobody would end it")

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    drain = Drain(endless)
    await drain.close()
    await drain({"type": "http", "method": "GET", "headers": [], "query_string": b""}, receive, send)
    assert said[0]["status"] == 503
