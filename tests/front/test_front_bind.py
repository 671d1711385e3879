"""Where the HTTP front may listen."""

from __future__ import annotations

import socket

import pytest
from support.wire import PATIENCE

from fastmcp_aggregator.access.listening import listening_socket, url_of
from fastmcp_aggregator.access.loopback import is_loopback, require_safe_bind
from fastmcp_aggregator.errors import AggregatorError

LOOPBACK = ["127.0.0.1", "127.9.8.7", "localhost", "::1", "0:0:0:0:0:0:0:1"]
REACHABLE = [
    "0.0.0.0",
    "::",
    "",
    "192.168.1.5",
    "8.8.8.8",
    "fe80::1",
    "example.org",
    "localhost.example.org",
    "127.1",
    "*",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_needs_no_authentication(host: str) -> None:
    assert is_loopback(host)
    require_safe_bind(host, has_auth=False)


@pytest.mark.parametrize("host", REACHABLE)
def test_anything_that_others_may_reach_needs_authentication(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(AggregatorError, match="refusing to listen on") as raised:
        require_safe_bind(host, has_auth=False)
    assert "Listen on 127.0.0.1, or make a key with `fastmcp-aggregator keys create NAME" in str(raised.value)
    require_safe_bind(host, has_auth=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_port_zero_takes_a_free_port_that_the_url_names(host: str) -> None:
    with listening_socket(host, 0) as one, listening_socket(host, 0) as other:
        assert one.getsockname()[1] != other.getsockname()[1] != 0
        assert url_of(one, host) == f"http://{host}:{one.getsockname()[1]}"
        with socket.create_connection(one.getsockname()[:2], timeout=PATIENCE):
            pass


def test_an_ipv6_address_stands_in_brackets_in_the_url() -> None:
    with listening_socket("127.0.0.1", 0) as listener:
        assert url_of(listener, "::1") == f"http://[::1]:{listener.getsockname()[1]}"


def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    with listening_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AggregatorError) as raised:
            listening_socket("127.0.0.1", port)
    assert str(raised.value) == (
        f"cannot listen on 127.0.0.1, port {port}: Address already in use; "
        "give another port (--port), or end what listens there"
    )


def test_a_host_that_does_not_exist_is_an_error_that_names_it() -> None:
    with pytest.raises(AggregatorError, match=r"cannot listen on no-such-host\.invalid, port 0: "):
        listening_socket("no-such-host.invalid", 0)


def test_answers_are_not_held_back_to_fill_a_packet() -> None:
    """asyncio sets TCP_NODELAY only on sockets whose protocol it can see."""
    with listening_socket("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
