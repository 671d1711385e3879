"""The client on a pipe: its working folder, and what is done when it leaves."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.server.connection import Connection, NotifyOnlyOutbound

from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.callers.pipe_client import pipe_client


def caller(*, is_modern: bool = True, **options: Any) -> Caller:
    outbound: Any = NotifyOnlyOutbound(None)  # type: ignore[arg-type]
    connection = Connection.from_envelope("2026-07-28", None, None, outbound=outbound)
    return Caller(connection, "tools/call", {}, 1, is_modern=is_modern, **options)


@pytest.mark.parametrize("is_modern", [False, True])
def test_the_requests_of_a_client_on_a_pipe_have_its_working_folder(is_modern: bool) -> None:
    with pipe_client("/home/ann/project"):
        assert caller(is_modern=is_modern).working_folder == "/home/ann/project"
    assert caller(is_modern=is_modern).working_folder is None


def test_the_working_folder_of_a_client_over_http_is_unknown_whatever_the_pipe_says() -> None:
    with pipe_client("/home/ann/project"):
        assert caller(scope={}).working_folder is None


def test_what_is_to_be_done_when_a_modern_client_leaves_its_pipe_is_done_then_and_once() -> None:
    done: list[str] = []
    with pipe_client(None) as client:
        assert caller().at_end_of_session(lambda: done.append("first"))
        assert caller().at_end_of_session(lambda: done.append("second"))
        assert done == []
    assert done == ["second", "first"]
    client.leave()
    assert len(done) == 2


def test_nothing_tells_when_a_modern_client_over_http_leaves() -> None:
    assert not caller(scope={}).at_end_of_session(lambda: None)
