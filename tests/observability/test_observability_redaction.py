"""Secrets are hidden wherever they stand, in every way in which they are written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from fastmcp_aggregator.config import load_config
from fastmcp_aggregator.observability.redaction import SHORTEST, Redactor
from fastmcp_aggregator.observability.secret_values import secrets_in

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASC\n-----END KEY-----\n"


@given(TEXTS, TEXTS, st.text(st.characters(exclude_categories=["Cs"], exclude_characters="*"), min_size=SHORTEST))
def test_a_value_is_hidden_wherever_it_stands(before: str, after: str, secret: str) -> None:
    redactor = Redactor([secret])
    assert secret not in redactor.text(before + secret + after)
    assert secret.encode() not in redactor.data((before + secret + after).encode())


@pytest.mark.parametrize(
    ("secrets", "text", "shown"),
    [
        pytest.param(["s3cret"], "a s3cret, s3cret", "a ***, ***", id="more than once"),
        pytest.param(["abc"], "abc", "abc", id="too short to be hidden"),
        pytest.param(["token", "token-2"], "token-2 token", "*** ***", id="the longer one first"),
        pytest.param(["Bearer s3cret"], "Bearer s3cret / s3cret", "*** / ***", id="credentials without their scheme"),
        pytest.param(["a b c d"], "b c d", "b c d", id="what only looks like credentials"),
        pytest.param([PEM], f"read {PEM!r}", "read '***'", id="as Python writes it"),
        pytest.param([PEM], json.dumps({"k": PEM}), '{"k": "***"}', id="as JSON writes it"),
        pytest.param(["p/ss wörd"], f"?p={quote('p/ss wörd', safe='')}", "?p=***", id="as URLs have it"),
        pytest.param([PEM], "bad line: MIIEvQIBADANBgkqhkiG9w0BAQEF", "bad line: ***", id="a line of it"),
        pytest.param([PEM], "AASC", "AASC", id="a line of it that is too short to tell"),
        pytest.param(["s3cret"], "S3CRET", "S3CRET", id="not in other letters"),
        pytest.param([], "nothing to hide", "nothing to hide", id="without secrets"),
    ],
)
def test_what_is_shown(secrets: list[str], text: str, shown: str) -> None:
    assert Redactor(secrets).text(text) == shown
    assert Redactor(secrets).data(text.encode()).decode() == shown


def test_what_a_source_has_later_is_hidden_as_well_as_what_it_had() -> None:
    secrets = ["first"]
    redactor = Redactor(["given"])
    redactor.follow(lambda: secrets)
    assert redactor.text("given first second") == "*** *** second"
    secrets[:] = ["second"]
    assert redactor.text("given first second") == "*** *** ***"


def test_the_secrets_of_a_config_are_its_variables_its_headers_and_what_its_urls_hide() -> None:
    document = {
        "files": {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "t-value", "DB": "pg://u:d%2Fvalue@h"}},
        "docs": {
            "url": "https://ann:p-value@example.com/mcp?key=q-value&empty=",
            "headers": {"Authorization": "Bearer h-value"},
        },
        "api": {"url": "https://u-value@example.com/mcp"},
    }
    config = load_config({"mcpServers": document})
    values = {"t-value", "pg://u:d%2Fvalue@h", "d/value", "p-value", "q-value", "Bearer h-value", "u-value"}
    assert set(secrets_in(config)) == values
    assert set(secrets_in(config.servers["api"])) == {"u-value"}


def test_secrets_are_found_in_models_dataclasses_and_collections() -> None:
    class Model(BaseModel):
        key: SecretStr
        name: str

    @dataclass
    class Value:
        models: dict[str, list[Model]]

    value = Value({"a": [Model(key=SecretStr("one"), name="x")], "b": [Model(key=SecretStr("two"), name="y")]})
    assert list(secrets_in((value, {SecretStr("three")}, "four", None, 5))) == ["one", "two", "three"]


@pytest.mark.parametrize("text", ["http://[::1", "//", "mailto:ann@example.com", "ann@example.com:x", ""])
def test_a_secret_that_only_resembles_a_url_has_nothing_else_in_it(text: str) -> None:
    assert list(secrets_in(SecretStr(text))) == [text]
