"""What crosses the wire when something goes wrong."""

from __future__ import annotations

import json

from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.errors import ChildServerError, NameConflictError, StartupError
from fastmcp_aggregator.front.wire import errors
from fastmcp_aggregator.naming.rules import NameRule

RULE = NameRule(":")


def on_the_wire(error: MCPError) -> tuple[int, str, object]:
    return error.code, error.message, json.loads(json.dumps(error.data))


def test_a_child_that_cannot_be_asked_is_named_with_the_reason_and_the_next_try() -> None:
    error = ChildServerError("files", "runtime", "it exited with code 3", retry_in=1.5)
    assert on_the_wire(errors.unavailable(error)) == (
        -32000,
        "server 'files': it exited with code 3",
        {"server": "files", "phase": "runtime", "retryIn": 1.5},
    )


def test_a_child_that_is_being_tried_right_now_has_no_next_try() -> None:
    error = ChildServerError("files", "startup", "it is unavailable, a new try is under way")
    assert on_the_wire(errors.unavailable(error))[2] == {"server": "files", "phase": "startup", "retryIn": None}


def test_what_a_child_wrote_to_stderr_and_our_exceptions_never_cross_the_wire() -> None:
    error = ChildServerError(
        "files", "runtime", "it exited with code 3", stderr_tail=["token=hunter2"], cause=OSError("hunter2")
    )
    for crossing in (errors.unavailable(error), errors.failed_start(StartupError([error]))):
        assert "hunter2" in str(error)
        assert "hunter2" not in json.dumps(on_the_wire(crossing))


def test_a_failed_start_names_every_failure() -> None:
    error = StartupError(
        [
            ChildServerError("files", "startup", "it exited with code 3", stderr_tail=["Traceback"]),
            NameConflictError("read", "one", "two"),
        ]
    )
    assert on_the_wire(errors.failed_start(error)) == (
        -32603,
        "the aggregator did not start: server 'files': it exited with code 3; "
        "servers 'one' and 'two' both offer 'read'; remove one of them or serve names with prefixes",
        None,
    )


def test_an_unknown_name_is_answered_in_the_words_of_its_kind_with_what_may_have_been_meant() -> None:
    assert on_the_wire(errors.unknown_name("tool", "filse:read", RULE, ["files:read"])) == (
        -32602,
        "Tool not found: filse:read\nDid you mean: files:read?",
        None,
    )
    assert errors.unknown_name("prompt", "ask", RULE, []).message == "Prompt name must be prefixed with server key: ask"
    assert errors.unknown_name("tool", ":x", RULE, []).message == "Invalid tool name format: :x"


def test_an_unknown_address_is_echoed_in_the_data() -> None:
    assert on_the_wire(errors.unknown_uri("file:///a", ["file://files//a"])) == (
        -32602,
        "Resource not found: file:///a\nDid you mean: file://files//a?",
        {"uri": "file:///a"},
    )


def test_an_endless_address_is_echoed_only_in_part() -> None:
    error = errors.unknown_uri("x://" + "y" * 10**6, [])
    assert len(json.dumps(on_the_wire(error))) < 3000


def test_a_request_of_the_wrong_shape_is_told_what_is_wrong_with_it() -> None:
    assert on_the_wire(errors.invalid_params("name: must be a string")) == (
        -32602,
        "Invalid request parameters: name: must be a string",
        None,
    )
