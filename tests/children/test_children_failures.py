"""Why talking to a child failed, in words for the user."""

from __future__ import annotations

import asyncio
import socket
import ssl

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import InitializeResult
from pydantic import ValidationError
from support.harness import config, lean
from support.memory import build_aggregator

from fastmcp_aggregator import StartupError
from fastmcp_aggregator.children.http.failures import of_exception
from fastmcp_aggregator.children.session.failures import describe

ADDRESS = "https://user:hunter2@example.org/mcp?token=hunter2"
REQUEST = httpx2.Request("POST", ADDRESS)


def status_error(status: int) -> httpx2.HTTPStatusError:
    """The exception as httpx makes it: with the whole address in its message."""
    with pytest.raises(httpx2.HTTPStatusError) as raised:
        httpx2.Response(status, request=REQUEST).raise_for_status()
    return raised.value


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def untrusted(why: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError("[SSL: CERTIFICATE_VERIFY_FAILED] hunter2")
    error.verify_message = why
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MCPError(-32603, "the database is closed"), "the database is closed"),
        (status_error(401), "HTTP status 401"),
        (status_error(503), "HTTP status 503"),
        (
            httpx2.ConnectError("[Errno 111] connecting to " + ADDRESS, request=REQUEST),
            "connection refused or host not found",
        ),
        (httpx2.ReadTimeout(ADDRESS, request=REQUEST), "no answer in time"),
        (httpx2.ConnectTimeout(ADDRESS, request=REQUEST), "no answer in time"),
        (httpx2.RemoteProtocolError(ADDRESS, request=REQUEST), "RemoteProtocolError"),
        (RuntimeError(ADDRESS), "RuntimeError"),
        (ValueError(), "ValueError"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_error_is_put_in_words_that_repeat_no_address(error: BaseException, words: str) -> None:
    assert describe(error) == words
    assert "hunter2" not in describe(error)


@pytest.mark.parametrize(
    "wrapped",
    [
        ExceptionGroup("unhandled errors in a TaskGroup", [status_error(404)]),
        ExceptionGroup("outer", [ValueError("noise"), ExceptionGroup("inner", [status_error(404)])]),
        caused(RuntimeError("Client failed to connect"), status_error(404)),
        caused(RuntimeError("outer"), caused(RuntimeError("inner"), status_error(404))),
        caused(RuntimeError("outer"), ExceptionGroup("group", [caused(ValueError(), status_error(404))])),
        BaseExceptionGroup("cancelled on the way", [asyncio.CancelledError(), status_error(404)]),
    ],
    ids=["group", "nested groups", "cause", "chain of causes", "cause, group, cause", "beside a cancellation"],
)
def test_the_telling_error_is_found_inside_what_libraries_wrap_around_it(wrapped: BaseException) -> None:
    assert describe(wrapped) == "HTTP status 404"


def test_a_group_in_which_nothing_is_telling_is_named_by_its_kind() -> None:
    assert describe(ExceptionGroup("nothing known", [ValueError(ADDRESS)])) == "ExceptionGroup"


async def test_a_real_refused_connection_is_described() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/hunter2"
        async with httpx2.AsyncClient() as client:
            with pytest.raises(httpx2.ConnectError) as raised:
                await client.get(address)
    assert describe(raised.value) == "connection refused or host not found"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (httpx2.ProxyError("407 Proxy Authentication Required"), "the proxy of the environment"),
        (
            caused(httpx2.ConnectError("x"), untrusted("self-signed certificate")),
            "not trusted (self-signed certificate)",
        ),
        (
            caused(httpx2.ConnectError("x"), untrusted("Hostname mismatch, for 'hunter2'")),
            "not trusted (Hostname mismatch)",
        ),
        (caused(httpx2.ConnectError("x"), ssl.SSLError("wrong version number")), "does not speak TLS"),
        (httpx2.ReadTimeout("hunter2"), "did not answer in time"),
        (httpx2.ConnectError("hunter2"), "connection refused or host not found"),
    ],
)
def test_why_an_address_cannot_be_reached_is_told_apart(error: Exception, words: str) -> None:
    reason = of_exception(error).reason
    assert (words in reason, "hunter2" in reason) == (True, False)


def test_an_answer_of_another_shape_is_described_by_its_place_and_not_by_what_stands_there() -> None:
    with pytest.raises(ValidationError) as raised:
        InitializeResult.model_validate({"capabilities": {"tools": "hunter2"}, "serverInfo": {}})
    words = describe(caused(RuntimeError("Client failed to connect"), raised.value))
    assert words.startswith("its answer is not as MCP prescribes (InitializeResult, ")
    assert "hunter2" not in words


async def test_a_server_that_answers_the_handshake_with_something_else_is_told_so() -> None:
    odd = {"protocolVersion": "2025-11-25", "capabilities": {"tools": 5}, "serverInfo": {"name": "x", "version": "1"}}
    with pytest.raises(StartupError, match=r"not as MCP prescribes \(InitializeResult, capabilities.tools: "):
        async with build_aggregator(config(x=lean(results={"initialize": odd}))):
            pytest.fail("entered")
