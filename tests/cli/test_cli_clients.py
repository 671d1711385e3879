"""What the known clients make of a server key."""

import pytest

from fastmcp_aggregator.cli.output.name_report import ClientGroup, client_groups, notes, pattern
from fastmcp_aggregator.naming.rules import CLIENT_RULES, NameRule, SeparatorSetting


def groups(separator: SeparatorSetting = "auto", *, prefix: bool = True) -> dict[str, ClientGroup]:
    found = client_groups(separator=separator, prefix=prefix)
    return {label: group for group in found for label in group.labels}


def rule(label: str, separator: SeparatorSetting = "auto", *, prefix: bool = True) -> NameRule:
    return groups(separator, prefix=prefix)[label].rule


def test_every_known_client_is_in_one_group_and_so_is_every_other() -> None:
    labels = [label for group in client_groups(separator="auto", prefix=True) for label in group.labels]
    assert sorted(labels) == sorted({client.label for client in CLIENT_RULES} | {"every other client"})


def test_clients_that_see_the_same_names_are_one_group() -> None:
    found = groups()
    assert found["Claude Desktop"] is found["ChatGPT"]
    assert found["VS Code"] is found["every other client"]
    assert found["Cursor"].labels == ("Cursor",)


def test_a_title_says_what_the_clients_accept() -> None:
    assert groups()["Cursor"].title == "Cursor (at most 50 characters, only A-Z a-z 0-9 _)"
    assert groups()["Claude Code"].title.endswith(" (at most 64 characters, only A-Z a-z 0-9 _ -)")
    assert groups()["VS Code"].title == "VS Code, Gemini CLI, every other client"


@pytest.mark.parametrize(
    ("label", "separator", "key", "expected"),
    [
        ("VS Code", "auto", "my files", "my files:<tool>"),
        ("VS Code", ".", "files", "files.<tool>"),
        ("Claude Desktop", "auto", "files", "files__<tool>"),
        ("Claude Desktop", "auto", "my-git", "my-git__<tool>"),
        ("Cursor", "auto", "my-git", "my_git__<tool>_<hash>"),
        ("Claude Desktop", "auto", "tool", "tool__<tool>"),
        ("Claude Desktop", "auto", "a__b", "a__b__<tool>_<hash>"),
        ("Claude Desktop", ".", "files", "files_<tool>_<hash>"),
        ("every other client", "__", "a.b", "a_b__<tool>_<hash>"),
    ],
)
def test_the_pattern_of_a_servers_names(label: str, separator: SeparatorSetting, key: str, expected: str) -> None:
    assert pattern(rule(label, separator), key) == expected


def test_the_pattern_of_a_key_that_leaves_no_room_for_tools() -> None:
    assert pattern(rule("Claude Desktop"), "k" * 70) == f"{'k' * 55}_<hash>"


@pytest.mark.parametrize(
    ("label", "separator", "key", "expected"),
    [
        ("VS Code", "auto", "my.files " * 9, []),
        ("Claude Desktop", "auto", "files", []),
        (
            "Claude Desktop",
            "auto",
            "my.files",
            ["'.' in the key is refused and becomes _; a hash keeps the names apart"],
        ),
        ("Cursor", "auto", "a-b c", ["' ' '-' in the key is refused and becomes _; a hash keeps the names apart"]),
        ("Claude Desktop", ".", "files", ["the separator . is refused and becomes _; a hash keeps the names apart"]),
        ("Claude Desktop", "auto", "a__b", ["the key contains the separator __; a hash keeps the names apart"]),
        ("Claude Desktop", "auto", "a_", ["the key contains the separator __; a hash keeps the names apart"]),
        ("Claude Desktop", "auto", "k" * 40, ["tool names of more than 22 characters are shortened"]),
        ("Claude Desktop", "auto", "k" * 70, ["tool names of more than 0 characters are shortened"]),
    ],
)
def test_the_notes_say_why_names_come_out_changed(
    label: str, separator: SeparatorSetting, key: str, expected: list[str]
) -> None:
    assert notes(rule(label, separator), key) == expected


def test_without_prefixes_the_key_changes_nothing() -> None:
    assert notes(rule("Claude Desktop", prefix=False), "my.files") == []


@pytest.mark.parametrize("limit", [None, 20])
def test_a_client_may_refuse_only_characters_or_only_length(limit: int | None) -> None:
    alphabet = None if limit else frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
    group = ClientGroup(("Some",), NameRule("__", alphabet, limit))
    assert group.title == ("Some (at most 20 characters)" if limit else "Some (only A-Z a-z 0-9 _)")
    assert notes(group.rule, "a.b") == (
        ["tool names of more than 15 characters are shortened"]
        if limit
        else ["'.' in the key is refused and becomes _; a hash keeps the names apart"]
    )
