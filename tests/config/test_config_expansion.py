"""Variables in a text: which are replaced, by what, and what is wrong with the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.config.expansion import expand, without_defaults

ENVIRON = {"HOME": "/home/ada", "EMPTY": "", "A": "a", "AB": "ab", "env": "an env", "TRICKY": "$A ${A} $$"}

TOKENS = st.lists(st.sampled_from(["$", "${", "}", "$$", ":-", "env:", "A", "NONE", "x"])).map("".join)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("$HOME/files", "/home/ada/files"),
        ("${HOME}/files", "/home/ada/files"),
        ("${env:HOME}/files", "/home/ada/files"),
        ("$A$AB${A}", "aaba"),
        ("${A}B", "aB"),
        ("$A-B", "a-B"),
        ("[$EMPTY]", "[]"),
        ("[${EMPTY}]", "[]"),
        ("${A:-other}", "a"),
        ("${NONE:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${NONE:-}", ""),
        ("${env:NONE:-other}", "other"),
        ("${env:A:-other}", "a"),
        ("${env}", "an env"),
        ("${env:-other}", "an env"),
        ("${NONE:-$A}", "a"),
        ("${NONE:-${EMPTY:-${A}}}!", "a!"),
        ("${NONE:-${env:A}b}c", "abc"),
        ("${A:-${NONE:-x}}y", "ay"),
        ("${NONE:-a:-b}", "a:-b"),
        ("${NONE:-$$}", "$"),
    ],
)
def test_a_reference_becomes_the_value_of_its_variable_or_its_default(written: str, value: str) -> None:
    expansion = expand(written, ENVIRON)
    assert expansion.value == value
    assert not expansion.missing
    assert not expansion.is_malformed


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("$$HOME", "$HOME"),
        ("$${HOME}", "${HOME}"),
        ("$$$A", "$a"),
        ("$$$$", "$$"),
        ("100$", "100$"),
        ("$5 and $-", "$5 and $-"),
        ("$(date)", "$(date)"),
        ("a}b", "a}b"),
        ("`ls` *", "`ls` *"),
    ],
)
def test_two_dollars_or_a_dollar_before_anything_else_are_literal(written: str, value: str) -> None:
    assert expand(written, ENVIRON).value == value


def test_a_value_that_was_put_in_is_not_expanded_again() -> None:
    assert expand("$TRICKY ${TRICKY:-x}", ENVIRON).value == "$A ${A} $$ $A ${A} $$"


@pytest.mark.parametrize(
    ("written", "missing"),
    [
        ("$NONE", ("NONE",)),
        ("${NONE}${env:NIL}$NONE", ("NONE", "NIL")),
        ("$Ab", ("Ab",)),
        ("${NONE:-$NIL}", ("NIL",)),
        ("${EMPTY:-${NIL}}", ("NIL",)),
    ],
)
def test_every_variable_without_value_and_default_is_missing_once(written: str, missing: tuple[str, ...]) -> None:
    assert expand(written, ENVIRON).missing == missing


def test_a_variable_in_a_default_that_is_not_used_is_not_missing() -> None:
    expansion = expand("${A:-${NONE:-$NIL}$NONE}", ENVIRON)
    assert (expansion.value, expansion.missing) == ("a", ())


@pytest.mark.parametrize(
    "written",
    [
        "${",
        "${}",
        "${A",
        "${1A}",
        "${A-b}",
        "${A:?b}",
        "${ A }",
        "${input:key}",
        "${env:}",
        "${A:-b",
        "${A:-${",
    ],
)
def test_a_brace_that_begins_no_variable_is_malformed(written: str) -> None:
    assert expand(written, ENVIRON).is_malformed


def test_what_is_wrong_inside_a_default_that_is_not_used_is_still_malformed() -> None:
    assert expand("${A:-${input:x}}", ENVIRON).is_malformed


@pytest.mark.parametrize("written", ["$A", "${A}", "${env:A}", "${A:-b}", "$NONE"])
def test_a_text_with_a_variable_counts_as_expanded(written: str) -> None:
    assert expand(written, ENVIRON).is_expanded


@pytest.mark.parametrize("written", ["", "a", "$$", "$5", "}", "${"])
def test_a_text_without_a_variable_does_not_count_as_expanded(written: str) -> None:
    assert not expand(written, ENVIRON).is_expanded


def test_what_is_shown_has_the_names_of_variables_without_values_and_defaults() -> None:
    assert without_defaults("$A/${env:HOME}/${NONE:-s3cret${A}}/x$$") == "${A}/${HOME}/${NONE}/x$$"


def test_the_repr_leaves_the_value_out() -> None:
    assert "/home/ada" not in repr(expand("$HOME", ENVIRON))


@given(st.text())
def test_any_text_survives_when_its_dollars_are_doubled(text: str) -> None:
    expansion = expand(text.replace("$", "$$"), ENVIRON)
    assert expansion.value == text
    assert not expansion.is_expanded


@given(TOKENS, TOKENS)
def test_two_texts_side_by_side_expand_as_each_alone(left: str, right: str) -> None:
    one, other, both = (expand(text, ENVIRON) for text in (left, right, f"{left}.{right}"))
    if not one.is_malformed and not other.is_malformed:
        assert both.value == f"{one.value}.{other.value}"
        assert set(both.missing) == {*one.missing, *other.missing}


def test_defaults_can_be_nested_as_deep_as_the_text_is_long() -> None:
    depth = 20_000
    assert expand("${NONE:-" * depth + "x" + "}" * depth, ENVIRON).value == "x"
    assert expand("${" * depth, ENVIRON).is_malformed
