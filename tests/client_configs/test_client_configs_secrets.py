"""What is taken for a secret: it is shown as dots, and can become a variable."""

from __future__ import annotations

from typing import Any

import pytest

from fastmcp_aggregator.client_configs.secrets import masked, masked_entry, with_variables
from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.config.models import RemoteServer, StdioServer

ENTRY = {
    "command": "run",
    "args": ["--api-key", "abc123", "--token=def456", "-e", "MY_SECRET=ghi789", "--verbose", "plain"],
    "env": {"GITHUB_TOKEN": "tok1tok1", "LEVEL": "debug", "DATABASE_URL": "postgres://me:pw55@h/d", "REF": "${SET}"},
}


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("API_KEY", "abcdef", "•••"),
        ("apiKey", "abcdef", "•••"),
        ("Authorization", "Bearer abcdef", "Bearer •••"),
        ("Authorization", "Bearer ${TOKEN}", "Bearer ${TOKEN}"),
        ("X", "prefix ghp_abcdefghijklmnopqrst", "prefix •••"),
        ("", "https://user:pass@h/p?a=1", "https://user:•••@h/p?a=1"),
        ("", "https://tok@h/p", "https://•••@h/p"),
        ("", "https://h/p?access_token=abc&x=1&key=def", "https://h/p?access_token=•••&x=1&key=•••"),
        ("", "Authorization: Bearer abcdef", "Authorization: Bearer •••"),
        ("MAX_TOKENS", "4096", "4096"),
        ("AUTH", "true", "true"),
        ("KEY_FILE", "/home/me/key.pem", "/home/me/key.pem"),
        ("MONKEY", "banana", "banana"),
        ("", "--port=8080", "--port=8080"),
        ("", "https://h/p?monkey=1", "https://h/p?monkey=1"),
        ("TOKEN", "$GITHUB_TOKEN", "$GITHUB_TOKEN"),
    ],
)
def test_what_looks_secret_is_dots_and_the_rest_is_shown(name: str, text: str, shown: str) -> None:
    assert masked(name, text) == shown


def test_an_entry_is_shown_without_its_secrets() -> None:
    shown = masked_entry(ENTRY)
    assert shown["args"] == ["--api-key", "•••", "--token=•••", "-e", "MY_SECRET=•••", "--verbose", "plain"]
    assert shown["env"] == {
        "GITHUB_TOKEN": "•••",
        "LEVEL": "debug",
        "DATABASE_URL": "postgres://me:•••@h/d",
        "REF": "${SET}",
    }


def test_secrets_become_variables_that_stand_for_the_same() -> None:
    variables: dict[str, str] = {}
    entry = with_variables("my db", ENTRY, variables)
    assert variables == {
        "GITHUB_TOKEN": "tok1tok1",
        "MY_DB_PASSWORD": "pw55",
        "MY_DB_API_KEY": "abc123",
        "MY_DB_TOKEN": "def456",
        "MY_SECRET": "ghi789",
    }
    assert not any(value in str(entry) for value in variables.values())
    before = load_config({"mcpServers": {"s": ENTRY}}, environ={"SET": "x"}).servers["s"]
    after = load_config({"mcpServers": {"s": entry}}, environ={**variables, "SET": "x"}).servers["s"]
    assert isinstance(before, StdioServer)
    assert isinstance(after, StdioServer)
    assert (after.args, after.env) == (before.args, before.env)


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


def test_a_secret_with_a_dollar_keeps_its_meaning() -> None:
    variables: dict[str, str] = {}
    entry = with_variables("a", {"url": "https://h", "headers": {"X-Key": "a$$b$$HOME"}}, variables)
    assert variables == {"A_X_KEY": "a$b$HOME"}
    server = load_config({"mcpServers": {"a": entry}}, environ=variables).servers["a"]
    assert isinstance(server, RemoteServer)
    assert server.plain_headers() == {"X-Key": "a$b$HOME"}
