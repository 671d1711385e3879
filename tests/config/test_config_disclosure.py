"""The one place that decides what is shown: an allow-list by kind of field."""

from __future__ import annotations

import secrets
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmcp_aggregator.config.disclosure import (
    DOTS,
    TEXT_LIMIT,
    Audience,
    Field,
    fields_of,
    hidden_in,
    replaced,
    shown,
)


@pytest.mark.parametrize(
    ("field", "text", "seen"),
    [
        ("value", "abcdef", "•••"),
        ("value", "Bearer abcdef", "Bearer •••"),
        ("value", "Bearer ${TOKEN}", "Bearer ${TOKEN}"),
        ("value", "$GITHUB_TOKEN", "${GITHUB_TOKEN}"),
        ("value", "${TOKEN:-ghp_default}", "${TOKEN}"),
        ("value", "pre${TOKEN}post", "•••${TOKEN}•••"),
        ("value", "a$$b", "•••"),
        ("value", "true", "true"),
        ("value", "4096", "•••"),
        ("url", "https://mcp.example.com:8443/v1/mcp", "https://mcp.example.com:8443/v1/mcp"),
        ("url", "https://user:pass@h/p?a=1", "https://•••:•••@h/•••?a=1"),
        ("url", "https://tok@h/mcp", "https://•••@h/mcp"),
        ("url", "https://h/mcp/s/abc/mcp?profile=x9y9&sig=z#f", "https://h/mcp/•••/•••/mcp?profile=•••&sig=•••#•••"),
        ("url", "https://h/mcp?TOKEN", "https://h/mcp?•••"),
        ("url", "https://h/${KEY}/mcp?k=${K}", "https://h/${KEY}/mcp?k=${K}"),
        ("url", "no url", "•••"),
        ("command", "npx", "npx"),
        ("command", "/usr/local/bin/npx", "/usr/local/bin/npx"),
        ("command", "npx -y s --token abc", "npx•••"),
        ("command", "https://u:p@h/x", "•••"),
        ("argument", "--api-key", "--api-key"),
        ("argument", "-kabc123def", "•••"),
        ("argument", "--token=abc", "--token=•••"),
        ("argument", "--token=${T}", "--token=${T}"),
        ("argument", "X-Auth-Value: abc", "X-Auth-Value: •••"),
        ("argument", "Authorization: Bearer abc", "Authorization: Bearer •••"),
        ("argument", "MY_KEY=abc", "MY_KEY=•••"),
        ("argument", "https://h/x/mcp?k=abc", "https://h/•••/mcp?k=•••"),
        ("argument", "--url=https://h/x/mcp", "--url=https://h/•••/mcp"),
        ("argument", "/home/me/build/index.js", "•••/index.js"),
        ("argument", "dist/src/index.js", "dist/src/index.js"),
        ("argument", "server.py", "server.py"),
        ("argument", "a1b2c3d4e5/index.js", "•••/index.js"),
        ("argument", "/home/me", "•••"),
        ("package", "@modelcontextprotocol/server-github@1.2.3", "@modelcontextprotocol/server-github@1.2.3"),
        ("package", "mcp-server-time", "mcp-server-time"),
        ("package", "5f4dcc3b5aa765d61d8327deb882cf99", "•••"),
        ("folder", "/home/me", "•••"),
        ("text", "a\nb\x1b[2J\u2028\u202e\x9b", "a\\nb\\x1b[2J\\u2028\\u202e\\x9b"),
    ],
)
def test_a_terminal_shows_what_its_kind_of_field_allows(field: Field, text: str, seen: str) -> None:
    assert shown(field, text, "terminal") == seen


@pytest.mark.parametrize("to", ["log", "local"])
def test_an_error_and_the_log_name_the_origin_of_a_url_alone(to: Audience) -> None:
    assert shown("url", "https://u:p@h:8/mcp/mcp?x=mcp", to) == "https://•••:•••@h:8"
    assert shown("url", "${BASE}/mcp", to) == ""
    assert shown("argument", "--verbose", to) == DOTS


@pytest.mark.parametrize("field", ["command", "argument", "package", "value", "url", "folder"])
def test_nobody_elsewhere_sees_anything_of_a_value(field: Field) -> None:
    assert shown(field, "true", "remote") == DOTS


@pytest.mark.parametrize(
    ("command", "arguments", "package"),
    [
        ("npx", ["-y", "server-github", "key"], 1),
        ("npx", ["--token", "server-github"], None),
        ("/usr/bin/uvx", ["--from", "git-server", "run"], 1),
        ("cmd", ["/c", "npx", "-y", "some-server"], 3),
        ("pnpm", ["dlx", "some-server"], 1),
        ("docker", ["run", "-i", "--rm", "-e", "TOKEN", "ghcr.io/github/github-mcp-server"], 5),
        ("python", ["-m", "mcp_server_time", "x"], 1),
        ("python", ["secret"], None),
        ("program", ["server-github"], None),
    ],
)
def test_a_package_is_where_a_known_runner_has_it(command: str, arguments: list[str], package: int | None) -> None:
    fields = fields_of(command, arguments)
    assert [index for index, field in enumerate(fields) if field == "package"] == ([] if package is None else [package])


@given(st.text(), st.sampled_from(["value", "url", "argument", "package", "command", "folder"]))
def test_hidden_parts_are_apart_and_in_order_and_nothing_shown_breaks_a_line(text: str, field: Field) -> None:
    parts = hidden_in(field, text)
    assert all(0 <= part.start < part.end <= len(text) for part in parts)
    assert all(one.end <= other.start for one, other in pairwise(parts))
    assert replaced(text, parts, lambda part, _: part) == text
    assert shown(field, text, "terminal").isprintable()


@pytest.mark.parametrize("field", ["value", "url", "argument", "folder"])
@pytest.mark.parametrize(
    "around", ["{}", "x{}", "{}${REF}", "${REF:-{}}", "${REF:-a${REF:-{}}}", "$$$${}", "/{}/", "?a={}"]
)
def test_a_random_secret_is_hidden_wherever_it_stands(field: Field, around: str) -> None:
    for prefix in ("", "https://u:p@h/mcp/", "https://h/mcp?x=", "--flag=", "Header: "):
        secret = secrets.token_hex(12)
        text = prefix + around.replace("{}", secret)
        assert secret not in shown(field, text, "terminal"), text


def test_a_text_is_of_limited_length_and_the_work_grows_with_its_length_alone() -> None:
    assert len(shown("text", "x" * 10_000, "terminal")) == TEXT_LIMIT

    def cost(count: int) -> float:
        text = "https://h" + "/a$B" * count
        began = time.process_time()
        shown("url", text, "terminal")
        return time.process_time() - began

    short, long = (min(cost(count) for _ in range(3)) for count in (4_000, 40_000))
    assert long < 40 * max(short, 0.001)
