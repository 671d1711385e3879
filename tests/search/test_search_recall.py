"""The search for tools on real ones: 492 tools of 20 servers, and what a model may ask for.

The questions were written from the names of the tools, and of other trades, before the ranking was looked at. It was
then adjusted on every second line of them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fastmcp_aggregator.front.fastmcp.tool_index import within_bounds
from fastmcp_aggregator.naming.tool_ranking import ToolRanking, searched
from fastmcp_aggregator.protocol.json_rpc import json_size

HERE = Path(__file__).parent


@cache
def tools() -> list[dict[str, Any]]:
    return json.loads((HERE / "tools.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


@cache
def questions() -> list[tuple[str, frozenset[str]]]:
    """Each question, and the tools of which one must be found; none: nothing fits."""
    lines = (HERE / "questions.txt").read_text(encoding="utf-8").splitlines()
    parts = (line.partition("|") for line in lines)
    return [(question.strip(), frozenset(wanted.split())) for question, _, wanted in parts]


@cache
def ranking() -> ToolRanking:
    split = ((*reversed(tool["name"].split(":", 1)), tool) for tool in tools())
    return ToolRanking(searched(name, server, tool) for name, server, tool in split)


def found(question: str) -> list[dict[str, Any]]:
    return [tools()[number] for number in ranking().best(question, 5)]


def test_the_set_is_large_enough_and_right() -> None:
    names = {tool["name"] for tool in tools()}
    assert len(names) >= 300
    assert len(questions()) >= 300
    assert not {name for _, wanted in questions() for name in wanted} - names


def test_the_right_tool_is_among_five() -> None:
    with_tool = [(question, wanted) for question, wanted in questions() if wanted]
    hits = [bool({tool["name"] for tool in found(question)} & wanted) for question, wanted in with_tool]
    assert sum(hits) / len(hits) >= 0.95


def test_what_no_tool_does_is_not_found() -> None:
    without = [question for question, wanted in questions() if not wanted]
    assert sum(not found(question) for question in without) / len(without) >= 0.95


def test_answers_have_a_bound() -> None:
    assert max(json_size(within_bounds(found(question))) for question, _ in questions()) <= 4000


@pytest.mark.parametrize("question", ["", "   ", "the of and", "🙂", "x" * 10_000])
def test_a_question_without_a_word_of_any_tool_finds_nothing(question: str) -> None:
    assert found(question) == []


def test_without_tools_nothing_is_found() -> None:
    assert ToolRanking([]).best("read a file", 5) == []
