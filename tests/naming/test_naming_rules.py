"""How a name is listed: the plain rule, the strict rules, and what holds for every name."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.naming.rules import NameRule, rule_for

CLAUDE = rule_for("claude-ai", separator="auto", prefix=True)
CURSOR = rule_for("cursor-vscode", separator="auto", prefix=True)
ACCEPTED = {CLAUDE: re.compile(r"[A-Za-z0-9_-]{1,64}"), CURSOR: re.compile(r"[A-Za-z0-9_]{1,50}")}

# Few characters, so that collisions would be found: separators, refused ones and long names among them.
ADVERSE_TEXT = st.text(alphabet="ab_-.é/", max_size=80) | st.text(max_size=80)
ORIGINAL_NAMES = ADVERSE_TEXT | st.sampled_from(["", "_", "__", "a__b", "b__c"])
SERVER_KEYS = ORIGINAL_NAMES.map(lambda key: key.replace(":", "").replace("\0", "") or "k")
STRICT_RULES = st.sampled_from(list(ACCEPTED))


def digest_of(server_key: str, original_name: str) -> str:
    return hashlib.sha256(f"{server_key}\0{original_name}".encode()).hexdigest()[:8]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (NameRule(":"), "my files:read.file"),
        (NameRule("__"), "my files__read.file"),
        (NameRule("."), "my files.read.file"),
        (NameRule("_"), "my files_read.file"),
        (NameRule(":", prefix=False), "read.file"),
    ],
)
def test_a_plain_rule_joins_names_as_they_are(rule: NameRule, expected: str) -> None:
    assert not rule.is_strict
    assert rule.public_name("my files", "read.file") == expected


@pytest.mark.parametrize(
    ("server_key", "original_name", "expected"),
    [
        ("files", "read_file", "files__read_file"),
        ("my-files", "read-file", "my-files__read-file"),
        ("a", "b__c", "a__b__c"),
        ("a", "_b", "a___b"),
    ],
)
def test_a_strict_client_gets_an_acceptable_name_unhashed(server_key: str, original_name: str, expected: str) -> None:
    assert CLAUDE.is_strict
    assert CLAUDE.public_name(server_key, original_name) == expected


@pytest.mark.parametrize(
    ("server_key", "original_name", "readable_part"),
    [
        ("my files", "read.file", "my_files__read_file"),
        ("a__b", "c", "a__b__c"),
        ("a_", "b", "a___b"),
        ("files", "größe", "files__gr__e"),
        ("files", "x" * 100, "files__" + "x" * 48),
        ("k" * 70, "tool", "k" * 55),
        ("files", "x" * 50 + ".", "files__" + "x" * 48),
    ],
)
def test_a_changed_shortened_or_ambiguous_name_ends_in_a_hash(
    server_key: str, original_name: str, readable_part: str
) -> None:
    public_name = CLAUDE.public_name(server_key, original_name)
    assert public_name == f"{readable_part}_{digest_of(server_key, original_name)}"


def test_the_names_in_the_documentation_are_the_real_ones() -> None:
    with_dot = rule_for("claude-ai", separator=".", prefix=True)
    assert CLAUDE.public_name("my-git", "git.log") == "my-git__git_log_b267c220"
    assert CLAUDE.public_name("a__b", "c") == "a__b__c_a92700ce"
    assert CURSOR.public_name("my-git", "log") == "my_git__log_e86b0aad"
    assert with_dot.public_name("files", "read_file") == "files_read_file_4de1cba9"


def test_a_name_of_exactly_the_limit_is_kept_and_one_more_is_shortened() -> None:
    fitting = "x" * (64 - len("files__"))
    assert CLAUDE.public_name("files", fitting) == f"files__{fitting}"
    assert len(CLAUDE.public_name("files", fitting + "x")) == 64
    assert CLAUDE.public_name("files", fitting + "x") != CLAUDE.public_name("files", fitting + "y")


def test_without_prefix_a_strict_client_gets_original_names_that_it_accepts() -> None:
    rule = rule_for("claude-ai", separator="auto", prefix=False)
    assert rule.public_name("files", "a__b") == "a__b"
    assert rule.public_name("files", "read.file") == f"read_file_{digest_of('files', 'read.file')}"
    assert rule.public_name("files", "") == f"_{digest_of('files', '')}"


def test_a_limit_alone_shortens_but_does_not_replace_characters() -> None:
    rule = NameRule(":", limit=16)
    assert rule.public_name("é", "é") == "é:é"
    assert rule.public_name("é", "é" * 20) == f"é:{'é' * 5}_{digest_of('é', 'é' * 20)}"


def test_an_alphabet_alone_replaces_characters_but_does_not_shorten() -> None:
    rule = NameRule("__", alphabet=CURSOR.alphabet)
    assert rule.public_name("a", "b" * 99) == f"a__{'b' * 99}"
    assert rule.public_name("a", "b." * 50) == f"a__{'b_' * 50}_{digest_of('a', 'b.' * 50)}"


def test_half_of_a_surrogate_pair_can_be_named() -> None:
    assert CLAUDE.public_name("files", "\ud800") != CLAUDE.public_name("files", "\udfff")


@pytest.mark.parametrize("alphabet", [frozenset(), frozenset("abc"), frozenset("0123456789abcdef")])
def test_an_alphabet_that_leaves_no_room_for_a_hash_is_refused(alphabet: frozenset[str]) -> None:
    with pytest.raises(ValueError, match="alphabet"):
        NameRule("__", alphabet=alphabet)


def test_a_limit_that_leaves_no_room_for_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        NameRule("__", limit=15)


@given(STRICT_RULES, SERVER_KEYS, ORIGINAL_NAMES)
def test_a_strict_client_accepts_every_name(rule: NameRule, server_key: str, original_name: str) -> None:
    for each in (rule, NameRule(rule.separator, rule.alphabet, rule.limit, prefix=False)):
        assert ACCEPTED[rule].fullmatch(each.public_name(server_key, original_name))


@given(st.text(), st.text(), st.sampled_from([":", ".", "_"]), st.integers(16, 64))
def test_any_strict_rule_keeps_its_promise(server_key: str, original_name: str, separator: str, limit: int) -> None:
    rule = NameRule(separator, CURSOR.alphabet, limit)  # type: ignore[arg-type]
    public_name = rule.public_name(server_key, original_name)
    assert re.fullmatch(r"[A-Za-z0-9_]+", public_name)
    assert len(public_name) <= limit


@given(STRICT_RULES, st.sets(st.tuples(SERVER_KEYS, ORIGINAL_NAMES), max_size=60))
def test_distinct_tools_never_share_a_strict_name(rule: NameRule, tools: set[tuple[str, str]]) -> None:
    assert len({rule.public_name(*tool) for tool in tools}) == len(tools)


@given(STRICT_RULES, SERVER_KEYS, st.sets(ORIGINAL_NAMES, max_size=60))
def test_distinct_tools_of_one_child_never_share_an_unprefixed_name(
    rule: NameRule, server_key: str, names: set[str]
) -> None:
    unprefixed = NameRule(rule.separator, rule.alphabet, rule.limit, prefix=False)
    assert len({unprefixed.public_name(server_key, name) for name in names}) == len(names)


@given(STRICT_RULES, st.lists(st.tuples(SERVER_KEYS, ORIGINAL_NAMES), min_size=1, max_size=20))
def test_a_name_depends_on_nothing_else_that_is_configured(rule: NameRule, tools: list[tuple[str, str]]) -> None:
    among_others = {tool: rule.public_name(*tool) for tool in tools}
    fresh = NameRule(rule.separator, rule.alphabet, rule.limit)
    alone = {tool: fresh.public_name(*tool) for tool in reversed(tools)}
    assert among_others == alone


@given(STRICT_RULES, SERVER_KEYS, ORIGINAL_NAMES)
def test_an_unhashed_name_reads_back_at_the_first_separator(
    rule: NameRule, server_key: str, original_name: str
) -> None:
    public_name = rule.public_name(server_key, original_name)
    if public_name == f"{server_key}__{original_name}":
        assert public_name.split("__", 1) == [server_key, original_name]
    else:
        assert public_name.endswith(f"_{digest_of(server_key, original_name)}")
