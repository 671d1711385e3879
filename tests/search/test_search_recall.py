"""The search for tools on real ones: 492 tools of 20 servers, and what a model may ask for.

Who searches is a model, which `search_tools` asks for two or three wordings. `wordings.txt` has what users wish, what a
model would then ask, and the right tools. Its wishes were written from tools that were drawn at random, its wordings
from the wishes, all before any ranking was asked. `wordings_held_out.txt` has other wordings of the same wishes, by a
model that knew the description of `search_tools` and no tool; they came after the last change of the ranking. The
ranking of words was adjusted on `questions.txt`, and once on `questions_held_out.txt`; `questions_unseen.txt` and the
wishes show what is found by a user's own words.

The right tools of a question are all whose descriptions say that they do what it asks, with what it names. The
descriptions decide, never what a ranking finds.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fastmcp_aggregator.front.fastmcp.tool_index import within_bounds
from fastmcp_aggregator.naming.tool_ranking import Ranked, Tool, ToolRanking, searched
from fastmcp_aggregator.protocol.json_rpc import json_size

HERE = Path(__file__).parent


@cache
def tools() -> list[dict[str, Any]]:
    return json.loads((HERE / "tools.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


SETS = ("questions.txt", "questions_held_out.txt", "questions_unseen.txt", "wishes", "wordings", "wordings_held_out")
COLUMNS = {
    "wishes": ("wordings.txt", 0),
    "wordings": ("wordings.txt", 1),
    "wordings_held_out": ("wordings_held_out.txt", 1),
}
"""Where the questions of a set stand that is not a file of its own with one question a line."""


@cache
def questions(name: str) -> list[tuple[str, frozenset[str]]]:
    """Each question, and the tools of which one must be found; none: nothing fits."""
    file, column = COLUMNS.get(name, (name, 0))
    lines = (HERE / file).read_text(encoding="utf-8").splitlines()
    parts = (line.split("|") for line in lines)
    return [(part[column].strip(), frozenset(part[-1].split())) for part in parts]


def every_question() -> list[tuple[str, frozenset[str]]]:
    return [each for name in SETS for each in questions(name)]


@cache
def ranking() -> ToolRanking:
    split = ((*reversed(tool["name"].split(":", 1)), tool) for tool in tools())
    return ToolRanking(searched(name, server, tool) for name, server, tool in split)


@cache
def best(question: str) -> Ranked:
    return ranking().best(question, 10)


def found(question: str) -> list[dict[str, Any]]:
    """What a search tells; or the first five of the ten that it names as the nearest."""
    return [tools()[number] for number in best(question).numbers[:5]]


def test_the_set_is_large_enough_and_right() -> None:
    names = {tool["name"] for tool in tools()}
    assert len(names) >= 300
    assert len(questions("wordings")) >= 300
    assert not {name for _, wanted in every_question() for name in wanted} - names


@pytest.mark.parametrize(("name", "share"), [*zip(SETS, (0.95, 0.85, 0.73, 0.65, 0.95, 0.95), strict=True)])
def test_the_right_tool_is_among_five(name: str, share: float) -> None:
    with_tool = [(question, wanted) for question, wanted in questions(name) if wanted]
    hits = [bool({tool["name"] for tool in found(question)} & wanted) for question, wanted in with_tool]
    assert sum(hits) / len(hits) >= share


@pytest.mark.parametrize(("name", "share"), [*zip(SETS, (0.95, 0.96, 0.95, 0.9, 0.95, 0.95), strict=True)])
def test_it_is_said_that_none_fits_where_none_does(name: str, share: float) -> None:
    without = [question for question, wanted in questions(name) if not wanted]
    assert sum(not best(question).fits for question in without) / len(without) >= share


@pytest.mark.parametrize(("name", "share"), [*zip(SETS, (0.04, 0.24, 0.43, 0.51, 0.04, 0.06), strict=True)])
def test_it_is_seldom_said_that_none_fits_where_one_does(name: str, share: float) -> None:
    with_tool = [question for question, wanted in questions(name) if wanted]
    assert sum(not best(question).fits for question in with_tool) / len(with_tool) <= share


def test_answers_have_a_bound() -> None:
    assert max(json_size(within_bounds(found(question))) for question, _ in every_question()) <= 4000


@pytest.mark.parametrize("question", ["", "   ", "the of and", "🙂", "x" * 10_000])
def test_a_question_without_a_word_of_any_tool_finds_nothing(question: str) -> None:
    assert found(question) == []


def test_without_tools_nothing_is_found() -> None:
    assert ToolRanking([]).best("read a file", 5) == ([], False)


def test_a_server_that_is_named_comes_first() -> None:
    tools = [Tool("close_page", "chrome", "Closes a page of the hub", ()), Tool("end", "github", "Closes a page", ())]
    assert ToolRanking(tools).best("close the page", 5).numbers[0] == 0
    assert ToolRanking(tools).best("close the GitHub page", 5).numbers[0] == 1


def test_what_one_wording_lacks_another_may_have() -> None:
    tools = [Tool("merge", "git", "Merges branches", ()), Tool("sort", "excel", "Sorts the rows of a sheet", ())]
    assert not ToolRanking(tools).best("bring a branch into another", 5).fits
    assert ToolRanking(tools).best("bring a branch into another; merge branches", 5) == ([0], True)


def test_wordings_and_words_that_count_have_a_bound() -> None:
    tools = ToolRanking([Tool("merge", "git", "Merges branches", ())])
    assert tools.best("x; " * 5 + "merge", 5) == ([], False)
    assert tools.best(" ".join(f"x{number}" for number in range(50)) + " merge", 5) == ([], False)
