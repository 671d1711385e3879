"""Which client gets which rule, and every spelling that is accepted."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.naming.rules import CLIENT_RULES, NameRule, SeparatorSetting, every_spelling, rule_for

SETTINGS: list[SeparatorSetting] = ["auto", ":", "__", ".", "_"]
STRICT_NAMES = [c.name for c in CLIENT_RULES if rule_for(c.name, separator="auto", prefix=True).is_strict]
ORDINARY_NAMES = ["Visual Studio Code", "Visual-Studio-Code", "gemini-cli-mcp-client", "mcp", "", None]


def test_the_strict_clients_are_those_known_to_refuse_names() -> None:
    assert STRICT_NAMES == [
        "claude-ai",
        "claude-code",
        "codex-mcp-client",
        "Codex",
        "ChatGPT",
        "openai-mcp",
        "github-copilot-developer",
        "cursor-vscode",
    ]


def test_every_known_client_has_its_own_name_and_a_label_of_one_line() -> None:
    assert len({client.name for client in CLIENT_RULES}) == len(CLIENT_RULES)
    assert all(client.label.isprintable() and client.label for client in CLIENT_RULES)


@pytest.mark.parametrize("client_name", STRICT_NAMES)
def test_a_strict_client_gets_two_underscores_and_its_own_limits_by_default(client_name: str) -> None:
    rule = rule_for(client_name, separator="auto", prefix=True)
    assert (rule.separator, rule.limit) == ("__", 50 if client_name == "cursor-vscode" else 64)
    assert rule.alphabet is not None
    assert ("-" in rule.alphabet) is (client_name != "cursor-vscode")
    assert "." not in rule.alphabet
    assert ":" not in rule.alphabet


@pytest.mark.parametrize("client_name", ORDINARY_NAMES)
def test_an_ordinary_client_gets_names_as_they_are_by_default(client_name: str | None) -> None:
    assert rule_for(client_name, separator="auto", prefix=True) == NameRule(":")


def test_tools_of_an_aggregator_behind_an_aggregator_have_names_without_a_hash_if_it_writes_two_underscores() -> None:
    rule = rule_for("claude-ai", separator="auto", prefix=True)
    assert rule.public_name("inner", "a:echo") == "inner__a_echo_d0fe750d"
    assert rule.public_name("inner", rule_for(None, separator="__", prefix=True).public_name("a", "echo")) == (
        "inner__a__echo"
    )


@pytest.mark.parametrize("client_name", ["Claude-AI", "claude-ai ", "claude"])
def test_clients_are_recognised_by_their_exact_name(client_name: str) -> None:
    assert not rule_for(client_name, separator="auto", prefix=True).is_strict


@pytest.mark.parametrize("separator", [":", ".", "_"])
def test_an_explicit_separator_is_for_everyone_and_strict_clients_keep_their_limits(
    separator: SeparatorSetting,
) -> None:
    ordinary = rule_for(None, separator=separator, prefix=True)
    claude = rule_for("claude-ai", separator=separator, prefix=True)
    assert ordinary.public_name("files", "read") == f"files{separator}read"
    assert (claude.separator, claude.limit) == (separator, 64)
    assert claude.public_name("files", "read").startswith("files_read")


def test_a_refused_separator_becomes_an_underscore_with_a_hash() -> None:
    assert rule_for("claude-ai", separator=":", prefix=True).public_name("a", "b").startswith("a_b_")


def test_two_underscores_give_everyone_safe_names_and_cursor_its_narrower_ones() -> None:
    unknown = rule_for("mcp", separator="__", prefix=True)
    assert unknown.is_strict
    assert unknown is rule_for("claude-ai", separator="auto", prefix=True)
    assert rule_for("cursor-vscode", separator="__", prefix=True).limit == 50


@pytest.mark.parametrize("separator", SETTINGS)
@pytest.mark.parametrize("client_name", [*STRICT_NAMES, *ORDINARY_NAMES])
def test_without_prefix_the_client_keeps_its_limits(client_name: str | None, separator: SeparatorSetting) -> None:
    prefixed = rule_for(client_name, separator=separator, prefix=True)
    unprefixed = rule_for(client_name, separator=separator, prefix=False)
    assert not unprefixed.prefix
    assert (unprefixed.alphabet, unprefixed.limit) == (prefixed.alphabet, prefixed.limit)


@given(st.text(), st.sampled_from(SETTINGS), st.booleans())
def test_equal_rules_are_one_object_whatever_the_client_is_called(
    client_name: str, separator: SeparatorSetting, prefix: bool
) -> None:
    if client_name in {client.name for client in CLIENT_RULES}:
        return
    rule = rule_for(client_name, separator=separator, prefix=prefix)
    assert rule is rule_for(None, separator=separator, prefix=prefix)
    assert {rule: "usable as a key"}[NameRule(rule.separator, rule.alphabet, rule.limit, prefix)]


def test_clients_that_accept_the_same_names_share_one_rule() -> None:
    rules = {id(rule_for(client.name, separator="auto", prefix=True)) for client in CLIENT_RULES}
    assert len(rules) == 3


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("original_name", ["read", "read.file", "a__b", "x" * 100])
@pytest.mark.parametrize("server_key", ["files", "my files", "a__b", "k" * 70])
def test_every_name_that_is_listed_is_among_the_spellings(server_key: str, original_name: str, prefix: bool) -> None:
    clients = (*STRICT_NAMES, *ORDINARY_NAMES)
    rules = {rule_for(c, separator=s, prefix=prefix) for c, s in product(clients, SETTINGS)}
    listed = {rule.public_name(server_key, original_name) for rule in rules}
    assert listed <= set(every_spelling(server_key, original_name, prefix=prefix))


def test_the_canonical_spelling_comes_first_and_none_comes_twice() -> None:
    spellings = every_spelling("files", "read")
    assert spellings[:4] == ("files:read", "files__read", "files.read", "files_read")
    assert len(set(spellings)) == len(spellings)


def test_without_prefix_the_original_name_comes_first_and_prefixed_ones_are_accepted_too() -> None:
    spellings = every_spelling("files", "read", prefix=False)
    assert spellings == ("read", *every_spelling("files", "read"))
