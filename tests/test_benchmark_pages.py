"""The benchmarks' page: its tables and charts are those of its files."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

pytest.importorskip("pygal", reason="it draws the charts")

from benchmarks import page
from benchmarks.charts import COLORS, Bar, charts_of
from benchmarks.peers import page as peers_page
from benchmarks.peers.table import PEERS

DRAWN = {"benchmarks": page, "peers": peers_page}


@pytest.mark.parametrize("name", DRAWN)
def test_the_page_has_the_figures_of_its_file(name: str) -> None:
    part = DRAWN[name]
    results = json.loads(part.FILE.read_text(encoding="utf-8"))
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text, part.parts(results)) == text, f"run the page of {name}"
    for file, chart in part.charts(results).items():
        assert said(page.IMAGES.joinpath(file).read_text(encoding="utf-8")) == said(chart), file
        assert f"images/{file}#only-{'dark' if 'dark' in file else 'light'}" in text


def said(chart: str) -> str | None:
    """What a chart shows, in words: its figures without what the library's version makes of them."""
    return ElementTree.fromstring(chart).get("aria-label")


def test_a_chart_loads_nothing_and_runs_nothing() -> None:
    drawn = charts_of("x", "Of <two>", [Bar("a", 1.0), Bar("b & c", 400.0, "anchor")], is_logarithmic=True)
    assert list(drawn) == [f"x-{theme}.svg" for theme in COLORS]
    for chart in drawn.values():
        assert "<script" not in chart
        assert not re.search(r"(href|src|url\()\W*http", chart)
        assert not re.search(r"20\d\d-\d\d-\d\d", chart)
        assert said(chart) == "Of <two>. a: 1; b & c: 400"


def test_a_chart_of_the_same_figures_is_the_same() -> None:
    assert charts_of("x", "A", [Bar("a", 1.0)]) == charts_of("x", "A", [Bar("a", 1.0)])


ABOUT = {
    "date": "2026-11-23",
    "commit": "abc1234",
    "system": "Linux x86_64",
    "cores": 2,
    "processor": "Some processor",
    "load": 0.1,
    "python": "3.11.7",
    "size": {"rounds": 2},
}


def row(*lines: dict) -> dict:
    return {"about": ABOUT, "lines": [{"against": {}, **line} for line in lines]}


def test_each_table_of_peers_says_when_where_and_of_which_commit_it_is() -> None:
    results = json.loads(peers_page.FILE.read_text(encoding="utf-8"))
    for name, text in peers_page.parts(results).items():
        if name != "peers-versions" and text != peers_page.MISSING:
            assert re.search(r"\*20\d\d-\d\d-\d\d, commit `[0-9a-f]+\+?`, .* cores of .*Python 3", text), name


def test_every_peer_has_its_version_or_why_it_is_not_there() -> None:
    results = json.loads(peers_page.FILE.read_text(encoding="utf-8"))
    assert set(results["peers"]) == {peer.name for peer in PEERS}
    assert all({"version", "absent"} & set(found) for found in results["peers"].values())


def test_one_that_failed_has_the_number_of_its_reason_and_ours_stand_out() -> None:
    of_calls = {"p50_ms": 2.0, "p99_ms": 3.0, "calls_per_s": 4.0, "cpu_us": 5.0, "rss_mb": 6.0}
    ours = {"name": "fastmcp-aggregator, stdio", "peer": "fastmcp-aggregator", **of_calls}
    calls = row(
        {"name": "direct call", "p50_ms": 1.0, "p99_ms": 1.0, "calls_per_s": 8.0},
        {**ours, "against": {"direct call": {"p50_ms": [1.9, 2.0, 2.1]}}},
        {"name": "other, SSE", "peer": "other", "absent": "it ended | with code 1"},
        {"name": "third, SSE", "peer": "third", "absent": "it ended | with code 1"},
    )
    lines = peers_page.parts({"peers": {}, "rows": {"calls": calls}})["peers-calls"].splitlines()
    assert lines[2] == "| direct call | 1 | 1 |  | 8 |  |  |"
    assert lines[3] == "| **fastmcp-aggregator, stdio** | 2 | 3 | 2 | 4 | 5 | 6 |"
    assert lines[4] == "| other, SSE | – [1] | – [1] | – [1] | – [1] | – [1] | – [1] |"
    assert sum("ended" in line for line in lines) == 1
    assert "*2026-11-23, commit `abc1234`" in lines[-1]


def test_what_was_seen_of_conduct_is_told_in_words() -> None:
    seen = {
        "death": {"seconds": 0.176},
        "hang": {"absent": "not within 40 s"},
        "progress": {"told": 0},
        "changes": {"is_told": False, "is_listed": True},
        **{pair: {"works": True} for pair in peers_page.ERA_PAIRS},
    }
    text = peers_page.parts({"peers": {}, "rows": {"conduct": row({"name": "other", "peer": "other", **seen})}})
    lines = text["peers-conduct"].splitlines()
    assert lines[2] == "| other | 0.176 | – [1] | 0 of 3 | not told, listed | Y | Y | Y | Y |"
    assert "[1] not within 40 s" in text["peers-conduct"]


def test_rows_that_differ_in_the_load_alone_are_told_in_one_line() -> None:
    rows = [{**ABOUT, "load": load} for load in (1.5, 0.5, 1.0)]
    assert [line.partition("load ")[2] for line in peers_page.machines([*rows, {**ABOUT, "commit": "def5678"}])] == [
        "0.5 to 1.5 at the start, Python 3.11.7*",
        "0.1 at the start, Python 3.11.7*",
    ]


def test_bars_are_of_those_that_have_the_figure() -> None:
    bars = peers_page.bars_of(
        [{"name": "a", "peer": "x", "p50_ms": 1}, {"name": "b", "peer": "y", "absent": "z"}], "p50_ms"
    )
    assert bars == [Bar("a", 1, "before")]
