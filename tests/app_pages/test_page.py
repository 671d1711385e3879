"""Where the script stands in a page, which pages get it, and what it is told."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from fastmcp_aggregator.app_pages.page import PageNames, with_own_names

NAMES = PageNames("clock", "clock", {"get-time": "clock__get-time"}, {})
APP = "text/html;profile=mcp-app"
LONG = "a " * 40_000


def page(text: str, **fields: Any) -> dict[str, Any]:
    return {"uri": "ui://clock/app", "mimeType": APP, "text": text, **fields}


def read(*contents: Any) -> list[Any]:
    """The parts of a result, with the script as `<script/>`."""
    result = with_own_names({"contents": list(contents), "x": 1}, NAMES)
    assert result["x"] == 1
    return [
        {**part, "text": part["text"].replace(NAMES.script, "<script/>")} if "text" in part else part
        for part in result["contents"]
    ]


@pytest.mark.parametrize(
    ("html", "with_script"),
    [
        ("<!DOCTYPE html><html><head><title>", "<!DOCTYPE html><html><head><script/><title>"),
        (
            "\ufeff <!-- <head> -->\n<!doctype html>\n<HTML lang='>'>\n<!-- --> <HEAD data-a=\">\">x",
            "\ufeff <!-- <head> -->\n<!doctype html>\n<HTML lang='>'>\n<!-- --> <HEAD data-a=\">\"><script/>x",
        ),
        ("<html><header>", "<html><script/><header>"),
        ("<p>Hello", "<script/><p>Hello"),
        ("<!doctype html>Hello <head>", "<!doctype html><script/>Hello <head>"),
        ("<!-- never ended <html><head>", "<script/><!-- never ended <html><head>"),
        ("", "<script/>"),
        (f"<!doctype html><html {LONG}><head>", f"<!doctype html><script/><html {LONG}><head>"),  # not looked through
    ],
)
def test_the_script_runs_before_everything_else_and_leaves_the_mode_of_the_page(html: str, with_script: str) -> None:
    [part] = read(page(html))
    assert part == page(with_script)


def test_a_page_may_come_as_bytes() -> None:
    blob = base64.b64encode("<p>Grüße".encode()).decode()
    result = with_own_names({"contents": [{"uri": "ui://a", "mimeType": APP, "blob": blob}]}, NAMES)
    assert base64.b64decode(result["contents"][0]["blob"]).decode() == f"{NAMES.script}<p>Grüße"


@pytest.mark.parametrize("mime_type", ['text/html; profile="mcp-app"', "TEXT/HTML;charset=utf-8;profile=MCP-app"])
def test_a_page_is_known_by_its_media_type_in_every_spelling(mime_type: str) -> None:
    [part] = read(page("<p>", mimeType=mime_type))
    assert part["text"] == "<script/><p>"


@pytest.mark.parametrize(
    "part",
    [
        page("<p>", mimeType="text/html"),
        page("<p>", mimeType="text/html;profile=other"),
        page("<p>", mimeType="text/plain;profile=mcp-app"),
        page("<p>", mimeType=None),
        page("<p>", _meta={"example.org/SHA256-digest": "…"}),
        page("<meta\nhttp-equiv = 'Content-Security-Policy' content=\"script-src 'sha256-…'\">"),
        {"uri": "ui://a", "mimeType": APP},
        {"uri": "ui://a", "mimeType": APP, "blob": "no base64"},
        {"uri": "ui://a", "mimeType": APP, "blob": base64.b64encode(b"\xff").decode()},
        page("<p>" * 3 * 1024 * 1024),
        "no object",
    ],
    ids=lambda part: str(part)[:80],
)
def test_what_is_no_page_or_must_stay_whole_stays_as_it_is(part: Any) -> None:
    assert read(part) == [part]


def test_for_a_policy_the_beginning_of_a_page_is_looked_through() -> None:
    policy = "<meta http-equiv=Content-Security-Policy>"
    near, far = (" " * length + policy for length in (100_000, 600_000))
    assert read(page(near)) == [page(near)]
    [part] = read(page(far))
    assert "<script/>" in part["text"]


@pytest.mark.parametrize("result", [{}, {"contents": None}, {"contents": []}])
def test_a_result_without_pages_is_not_copied(result: dict[str, Any]) -> None:
    assert with_own_names(result, NAMES) is result


def test_no_name_of_a_tool_ends_the_script() -> None:
    name = "</script><script>alert(1)</script><!--<script>"
    script = PageNames("a", None, {name: "x", "\ud800": "y"}, {}).script
    assert script.count("</script>") == 1
    assert script.isascii()
    given = script[script.rindex("})(") + 3 : -len(");</script>")]
    assert json.loads(given) == {"key": "a", "host": None, "tools": {name: "x", "\ud800": "y"}, "prompts": {}}
