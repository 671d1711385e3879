"""What of a client's entry is shown: as dots otherwise, and as variables in what is written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.client_configs.known import CLIENT_CONFIGS
from fastmcp_aggregator.client_configs.secrets import masked_entry, with_variables
from fastmcp_aggregator.client_configs.translation import translated
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.config.models import RemoteServer, StdioServer

ENTRY = {
    "command": "run",
    "args": ["--api-key", "abc123", "--token=def456", "-e", "MY_SECRET=ghi789", "--verbose", "plain"],
    "env": {"GITHUB_TOKEN": "tok1tok1", "LEVEL": "debug", "DATABASE_URL": "postgres://me:pw55@h/d", "REF": "${SET}"},
}


def test_an_entry_is_shown_without_its_secrets() -> None:
    shown = masked_entry({**ENTRY, "cwd": "/home/x", "description": "words", "timeout": 5})
    assert shown["args"] == ["--api-key", "•••", "--token=•••", "-e", "MY_SECRET=•••", "--verbose", "•••"]
    assert shown["env"] == {"GITHUB_TOKEN": "•••", "LEVEL": "debug", "DATABASE_URL": "•••", "REF": "${SET}"}
    assert (shown["cwd"], shown["description"], shown["timeout"]) == ("•••", "•••", 5)


WRONG_TYPES: list[dict[str, Any]] = [
    {"command": "x", "args": "--token abc123de"},
    {"command": "x", "args": {"token": "abc123de"}},
    {"command": "x", "args": [["abc123de"], {"token": "abc123de"}]},
    {"command": "x", "env": "TOKEN=abc123de"},
    {"command": "x", "env": ["TOKEN=abc123de"]},
    {"command": ["x", "--token", "abc123de"]},
    {"command": "x", "cwd": ["abc123de"]},
    {"url": ["https://h/abc123de"]},
    {"url": "https://h", "headers": "Authorization: abc123de"},
]


@pytest.mark.parametrize("entry", WRONG_TYPES)
def test_of_a_value_of_a_wrong_type_nothing_is_shown_or_left(entry: dict[str, Any]) -> None:
    variables: dict[str, str] = {}
    assert "abc123de" not in str(masked_entry(entry))
    assert "abc123de" not in str(with_variables("a", entry, variables))
    assert any("abc123de" in value for value in variables.values())


FIELDS = """command args env cwd url httpUrl serverUrl headers type transport timeout description disabled enabled
bearer_token_env_var http_headers env_http_headers env_vars tool_timeout_sec"""
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just("abc123de"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "x"]), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS.split(), ANYTHING)),
    st.sampled_from(list(CLIENT_CONFIGS.values())),
)
def test_whatever_the_fields_of_an_entry_are_it_is_translated_and_no_value_is_shown(fields: Any, client: Any) -> None:
    entry = translated(fields, client, None).entry
    if entry is None:
        return
    shown = str(masked_entry({name: value for name, value in entry.items() if name != "command"}))
    for name in ("${abc123de", "'abc123de':"):  # names of variables are no secrets
        shown = shown.replace(name, "")
    assert "abc123de" not in shown
    with_variables("a", entry, {})


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ({"http_headers": "A: b"}, "`http_headers` is no table, so it is left out"),
        ({"env_http_headers": ["A"]}, "`env_http_headers` is no table, so it is left out"),
        ({"env_vars": "A"}, "`env_vars` is no list, so it is left out"),
        ({"bearer_token_env_var": 1}, "`bearer_token_env_var` is no text, so it is left out"),
        ({"tool_timeout_sec": "60"}, "`tool_timeout_sec` is no number above 0, so it is left out"),
        ({"tool_timeout_sec": True}, "`tool_timeout_sec` is no number above 0, so it is left out"),
    ],
)
def test_a_field_of_codex_that_is_of_a_wrong_type_is_left_out_and_told(field: dict[str, Any], told: str) -> None:
    found = translated({"url": "https://h/mcp", **field}, CLIENT_CONFIGS["codex"], None)
    assert (found.entry, found.remarks) == ({"url": "https://h/mcp"}, (told,))


def test_what_is_not_shown_becomes_variables_that_stand_for_the_same() -> None:
    variables: dict[str, str] = {}
    entry = with_variables("my db", ENTRY, variables)
    assert variables == {
        "GITHUB_TOKEN": "tok1tok1",
        "DATABASE_URL": "postgres://me:pw55@h/d",
        "MY_DB_API_KEY": "abc123",
        "MY_DB_TOKEN": "def456",
        "MY_SECRET": "ghi789",
        "MY_DB_VERBOSE": "plain",
    }
    assert not any(value in str(entry) for value in variables.values())
    before = load_config({"mcpServers": {"s": ENTRY}}, environ={"SET": "x"}).servers["s"]
    after = load_config({"mcpServers": {"s": entry}}, environ={**variables, "SET": "x"}).servers["s"]
    assert isinstance(before, StdioServer)
    assert isinstance(after, StdioServer)
    assert (after.args, after.env) == (before.args, before.env)


def test_a_file_that_is_here_stays_in_what_is_written() -> None:
    variables: dict[str, str] = {}
    entry = {"command": "x", "args": ["/home/me", "/elsewhere"], "cwd": "/home/me"}
    written = with_variables("a", entry, variables, lambda text: text == "/home/me")
    assert written == {"command": "x", "args": ["/home/me", "${A_ARGUMENT}"], "cwd": "/home/me"}


def test_different_secrets_never_share_a_variable_and_equal_ones_do() -> None:
    variables: dict[str, str] = {}

    def converted(key: str, token: str) -> Any:
        return with_variables(
            key, {"url": "https://h", "headers": {"X-Key": "k" + token}, "env": {"T_TOKEN": token}}, variables
        )

    assert converted("a", "first")["env"] == converted("b", "first")["env"] == {"T_TOKEN": "${T_TOKEN}"}
    assert converted("c", "second")["env"] == {"T_TOKEN": "${C_T_TOKEN}"}
    assert converted("c", "third")["headers"] == {"X-Key": "${C_X_KEY_2}"}
    assert variables["C_X_KEY"] == "ksecond"


@pytest.mark.parametrize("value", ["a$$b$$HOME", "${UNSET:-dflt}", "x${UNSET:-y${UNSET:-z9}}w", "Bearer t$$"])
def test_a_value_keeps_its_meaning_however_it_is_written(value: str) -> None:
    variables: dict[str, str] = {}
    before = {"url": "https://h", "headers": {"X-Key": value}}
    entry = with_variables("a", before, variables)
    assert variables
    for environ in ({}, {"UNSET": "set"}):
        servers = [
            load_config({"mcpServers": {"a": e}}, environ={**variables, **environ}).servers["a"]
            for e in (before, entry)
        ]
        assert all(isinstance(server, RemoteServer) for server in servers)
        one, other = [server.plain_headers() for server in servers if isinstance(server, RemoteServer)]
        assert one == other
