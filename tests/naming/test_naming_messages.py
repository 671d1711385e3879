"""What a client is told about a name or an address that is not known, and what is suggested."""

from __future__ import annotations

import random
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.naming import suggestions
from fastmcp_aggregator.naming.rules import NameRule, rule_for
from fastmcp_aggregator.naming.suggestions import closest, split_once, unknown_name_message, unknown_uri_message
from fastmcp_aggregator.naming.uris import public_uri

PLAIN = NameRule(":")
SAFE = rule_for("claude-ai", separator="auto", prefix=True)
UNPREFIXED = NameRule(":", prefix=False)
TOOLS = [
    "filesystem:read_file",
    "filesystem:list_directory",
    "everything:echo",
    "everything:add",
    "calculator:add",
    "git:git_status",
    "git:git_commit",
    "SQL:DROP",
]


@pytest.mark.parametrize(
    ("wanted", "best"),
    [
        ("filesytem:read_file", "filesystem:read_file"),
        ("filesystem:raed_file", "filesystem:read_file"),
        ("filesytem:raed_file", "filesystem:read_file"),
        ("FileSystem:readFile", "filesystem:read_file"),
        ("filesystem__read_file", "filesystem:read_file"),
        ("filesystem/read_file", "filesystem:read_file"),
        ("disk:read_file", "filesystem:read_file"),
        ("read_file", "filesystem:read_file"),
        ("git_stats", "git:git_status"),
        ("git:status", "git:git_status"),
        ("everythin", "everything:add"),
        ("sql:drop", "SQL:DROP"),
    ],
)
def test_a_typo_in_key_or_tool_or_a_missing_key_is_understood(wanted: str, best: str) -> None:
    assert closest(wanted, TOOLS)[0] == best


def test_other_tools_of_the_right_server_are_no_suggestion_for_an_unlike_one() -> None:
    assert closest("everything:divide", TOOLS) == []


def test_a_right_tool_of_a_wrong_server_suggests_every_server_that_has_it() -> None:
    assert sorted(closest("maths:add", TOOLS)) == ["calculator:add", "everything:add"]


def test_a_bare_tool_that_contains_the_separator_is_understood() -> None:
    assert closest("read_file", ["files_read_file"], separators=(":", "_")) == ["files_read_file"]


def test_at_most_three_are_suggested_and_none_twice() -> None:
    names = [f"files:read_{n}" for n in range(9)] * 2
    assert closest("files:read_x", names) == ["files:read_0", "files:read_1", "files:read_2"]
    assert len(closest("files:read_x", names, limit=99)) == 3
    assert closest("files:read_x", names, limit=1) == ["files:read_0"]


@given(st.permutations(TOOLS), st.sampled_from([*TOOLS, "add", "git", "files:add"]))
def test_the_order_of_the_candidates_makes_no_difference(candidates: list[str], wanted: str) -> None:
    assert closest(wanted, iter(candidates)) == closest(wanted, TOOLS)


@given(st.text(), st.lists(st.text(max_size=40), max_size=20))
def test_suggestions_are_always_among_the_candidates(wanted: str, candidates: list[str]) -> None:
    suggested = closest(wanted, candidates)
    assert set(suggested) <= set(candidates)
    assert len(suggested) == len(set(suggested)) <= 3


def test_only_the_beginning_of_a_long_name_is_compared_and_long_candidates_are_left_out() -> None:
    kept = "k:" + "x" * 254
    assert closest(kept + "y" * 1_000_000, [kept, kept + "y"]) == [kept]


def test_long_names_are_compared_by_what_they_share_at_both_ends() -> None:
    long = "file://files//home/ada/projects/engine/src/main/resources/templates/invoice-{}.html"
    unlike = "".join(random.Random(1).sample(long, len(long)))
    assert closest(long.format("enn"), [long.format("en"), unlike], separators=()) == [long.format("en")]
    assert closest("x" * 81, ["y" * 81, "x" * 100]) == ["x" * 100]


def test_crafted_names_are_compared_exactly_only_if_few_and_short(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    class Counting(SequenceMatcher[str]):
        def ratio(self) -> float:
            compared.append(len(self.a) * len(self.b))  # type: ignore[attr-defined]
            return super().ratio()

    monkeypatch.setattr(suggestions, "SequenceMatcher", Counting)
    for length in (60, 70, 240):
        closest("k:" + "ab" * (length // 2), [f"k:{'ab' * (length // 2)}{n:04}" for n in range(3000)])
    assert 60 * 60 < max(compared) <= 80 * 80
    assert len(compared) <= 3 * 12 * 3  # names, candidates, and parts of each that are compared


def test_only_the_first_two_thousand_candidates_are_looked_at() -> None:
    unlike = ["zzzzzzzz"] * 1999
    assert closest("a:b", [*unlike, "a:b", "a:bb"]) == ["a:b"]


@pytest.mark.parametrize(
    ("name", "separators", "expected"),
    [
        ("server:tool:sub", (":",), ("server", "tool:sub")),
        ("a__b:c", (":", "__"), ("a", "b:c")),
        ("a:b__c", (":", "__"), ("a", "b__c")),
        (":b", (":",), ("", "b")),
        ("a", (":", "__"), None),
        ("a:b", (), None),
    ],
)
def test_only_the_first_separator_separates(
    name: str, separators: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    assert split_once(name, separators) == expected


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        (PLAIN, "nothing_like_it", "Tool name must be prefixed with server key: nothing_like_it"),
        (PLAIN, "", "Tool name must be prefixed with server key: "),
        (PLAIN, "zz__yy", "Tool name must be prefixed with server key: zz__yy"),
        (SAFE, "zz.yy", "Tool name must be prefixed with server key: zz.yy"),
        (PLAIN, ":read_file", "Invalid tool name format: :read_file"),
        (PLAIN, "files:", "Invalid tool name format: files:"),
        (PLAIN, ":", "Invalid tool name format: :"),
        (SAFE, "__read_file", "Invalid tool name format: __read_file"),
        (SAFE, "files__", "Invalid tool name format: files__"),
        (SAFE, ":a__b", "Invalid tool name format: :a__b"),
        (PLAIN, "__zz:yy", "Tool not found: __zz:yy"),
        (SAFE, "zz__yy", "Tool not found: zz__yy"),
        (SAFE, "zz:yy", "Tool not found: zz:yy"),
        (PLAIN, "server:tool:sub", "Tool not found: server:tool:sub"),
        (UNPREFIXED, "zz", "Tool not found: zz"),
        (UNPREFIXED, ":zz", "Tool not found: :zz"),
    ],
)
def test_an_unknown_name_is_explained(rule: NameRule, name: str, expected: str) -> None:
    assert unknown_name_message("tool", name, rule, TOOLS) == expected


def test_prompts_are_called_prompts() -> None:
    assert unknown_name_message("prompt", "x", PLAIN, ()) == "Prompt name must be prefixed with server key: x"
    assert unknown_name_message("prompt", ":x", PLAIN, ()) == "Invalid prompt name format: :x"
    assert unknown_name_message("prompt", "x:y", PLAIN, ()) == "Prompt not found: x:y"


def test_suggestions_are_on_their_own_line() -> None:
    assert unknown_name_message("tool", "filesytem:read_file", PLAIN, TOOLS) == (
        "Tool not found: filesytem:read_file\nDid you mean: filesystem:read_file?"
    )
    assert unknown_name_message("tool", "read_file", PLAIN, TOOLS) == (
        "Tool name must be prefixed with server key: read_file\nDid you mean: filesystem:read_file?"
    )
    assert unknown_name_message("tool", "maths:add", PLAIN, TOOLS) == (
        "Tool not found: maths:add\nDid you mean: calculator:add, everything:add?"
    )


def test_only_what_the_caller_may_see_is_suggested() -> None:
    visible = [tool for tool in TOOLS if not tool.startswith("filesystem:")]
    assert "Did you mean" not in unknown_name_message("tool", "filesystem:raed_file", PLAIN, visible)


def test_names_are_suggested_as_the_caller_sees_them() -> None:
    listed = [tool.replace(":", "__") for tool in TOOLS]
    assert unknown_name_message("tool", "filesytem:read_file", SAFE, listed).endswith(
        "\nDid you mean: filesystem__read_file?"
    )
    assert unknown_name_message("tool", "raed_file", UNPREFIXED, ["read_file"]).endswith("\nDid you mean: read_file?")


def test_a_long_name_is_echoed_in_part() -> None:
    assert unknown_name_message("tool", "a:" + "b" * 126, PLAIN, ()) == f"Tool not found: a:{'b' * 126}"
    assert unknown_name_message("tool", "a:" + "b" * 127, PLAIN, ()) == f"Tool not found: a:{'b' * 125}…"
    assert len(unknown_uri_message("file:///" + "b" * 1_000_000, ())) == len("Resource not found: ") + 128


def test_what_cannot_be_printed_is_escaped() -> None:
    name = "a:b\n\x1b[31m\x00\x7f\u202e\u2028\ud800é ok"
    message = unknown_name_message("tool", name, PLAIN, [name + "s"])
    escaped = r"a:b\n\x1b[31m\x00\x7f\u202e\u2028\ud800é ok"
    assert message == f"Tool not found: {escaped}\nDid you mean: {escaped}s?"


@given(st.text(), st.lists(st.text(), max_size=5), st.sampled_from([PLAIN, SAFE, UNPREFIXED]))
def test_a_message_has_at_most_two_printable_lines(name: str, candidates: list[str], rule: NameRule) -> None:
    lines = unknown_name_message("tool", name, rule, candidates).split("\n")
    assert len(lines) <= 2
    assert all(line.isprintable() for line in lines)


def test_an_unknown_resource_suggests_the_one_that_was_meant() -> None:
    addresses = ["demo://everything/x/1", "file://files//a/b", "file://more//a/b", "plain"]
    assert unknown_uri_message("file:///a/b", addresses, addresses[1:3]) == (
        "Resource not found: file:///a/b\nDid you mean: file://files//a/b, file://more//a/b?"
    )
    assert unknown_uri_message("demo://everythin/x/1", addresses) == (
        "Resource not found: demo://everythin/x/1\nDid you mean: demo://everything/x/1?"
    )
    assert unknown_uri_message("zz:9", iter(addresses)) == "Resource not found: zz:9"


def test_an_address_too_long_to_show_is_not_suggested() -> None:
    original = f"file:///{'b' * 1000}"
    with_key = [public_uri("files", original)]
    assert "Did you mean" not in unknown_uri_message(original, with_key, with_key)


def test_what_an_unknown_resource_costs_does_not_grow_with_what_is_listed() -> None:
    listed, with_key = iter(range(100_000)), iter(range(1000))
    assert "Did you mean" not in unknown_uri_message("zz:9", (f"x://a/{each}" for each in listed))
    assert next(listed) <= 2000
    message = unknown_uri_message("x:9", (), (f"x://{each}:/9" for each in with_key))
    assert message.endswith("\nDid you mean: x://0:/9, x://1:/9, x://2:/9?")
    assert next(with_key) == 3


def test_nor_with_how_long_its_addresses_are() -> None:
    listed = iter(range(1000))
    assert "Did you mean" not in unknown_uri_message("zz:9", (f"x://a/{each:0200}" for each in listed))
    assert next(listed) < 330
