"""Ranking of tools by the words of a question, and whether any fits at all. Pure.

BM25 over fields (Robertson, Zaragoza: The Probabilistic Relevance Framework, 2009): a word counts by how few tools have
it, and most in a tool's name, less in its server's, its description and its arguments. Words are compared by stems,
and with others of the same meaning, which count less. Where the best tool lacks most of a question, none fits.

A question may be several wordings of one, separated by semicolons: their ranks are fused (Cormack, Clarke, Büttcher:
Reciprocal Rank Fusion, 2009), and what a tool lacks is the mean of what it lacks of each.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, NamedTuple

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+[a-z]*|[^\W\d_a-zA-Z]+")
_STOP = frozenset(
    """
    a again an and another any are as at be been by can could did do does
    for from get give had has have he her his how i if in into is it it's its let like make may me my near
    need of on one or our out over please really see she should show so some something tell than that
    the their them then there these they this those to tool tools two us use used using want was we were what
    when where which while who whom whose will with without would you your
    """.split()  # noqa: SIM905 - as a table
)
_ENDINGS = (
    "ations", "ation", "ators", "ator", "ating", "ated", "ates", "ate", "ings", "ing", "ers", "er", "ies",
    "ied", "ed", "ly", "es", "s",
)  # fmt: skip
_ALIKE = """
    abort cancel force kill stop terminate; about describe detail info information metadata; accept approve review;
    access allow allowed permit touch; access permission privilege restriction right; account profile user; add
    append attach create insert put; addition plus sum total; address link url; ajax fetch request xhr; alert dialog
    popup prompt; all enumerate every list; allow limit only restrict validation; amount count many number;
    annotation comment note remark reply; apply deploy install rollout; archive compress gzip zip; area district map
    region; arrange order sort; article page post; aside pause shelve stash; ask query question; assign assignee;
    assignee people person user; attribute field property; audit quality rating score; author blame written wrote;
    back previous; begin first top; between cidr range subnet; big bytes large much size weigh; blueprint template;
    bold format italic style; border frame; bottom end last; branch fork; browser chrome page tab website; bug
    defect issue task ticket; call usage use used; capture record screencast video; capture take; category group;
    cell range; celsius convert fahrenheit feet foot gallon gram inch kilogram kilometer kilometre liter litre meter
    metre mile pound unit yard; change edit modify patch replace set update; change switch toggle; changed last
    modified modify; changelog history log version; chapter part section; chart diagram graph picture plot
    visualize; check correct test valid validate verify well; checksum digest hash sha; choose dropdown option pick
    select; city timezone zone; clean cleanup clear tidy; clock date datetime time; clone copy duplicate; close done
    end finish resolve; cluster k8s kubectl kubernetes pod; code program source; collection set; color colour
    coloured hue; column field; combine join merge; comma csv separated; command process program shell terminal;
    company hierarchy org organization reports team; compare diff difference; condition conditional rule when;
    condition state status transition; config configuration option preference settings; confluence page wiki;
    confluence space wiki; connect edge link relate relation; constant value; container docker pod; content contents
    inside payload; convert into transform turn; cordon drain maintenance; crash error fail failure log; create draw
    generate make paint; create file report; create generate random; create post publish release; credential
    password secret; cron next schedule; data database source table; date day month week year; decode parse; delete
    drop erase forget remove uninstall; dictionary schema; digit number numeric; directory folder; dirty uncommitted
    unstaged working; disk file filesystem space storage; display open read see show view; distribution frequency
    histogram; divide split; document docx word; documentation explain help; download fetch get pull retrieve;
    duration hours time worklog; effort work worklog; element node; email mail; emulate fake pretend simulate;
    emulate network throttle; encode encrypt; enter fill type write; entity node person thing; env environment; env
    variable; epic story; error exception; error invalid wrong; examine inspect look; excel office word; excel sheet
    spreadsheet workbook worksheet; exec execute launch run start; export save; expose forward port reachable
    tunnel; expression pattern regex; extract text; extract unpack; fact observation; fast load performance slow
    speed trace; figure image photo picture screenshot; find locate look query search where which; folder workspace;
    follow subscribe watch watcher; form input; freeze lock pane; frequency word; friend member people person user;
    funnel phase stage step; glob pattern wildcard; go jump navigate open visit; goal result target; graph knowledge
    memory remember; grid table; group pivot summarize; group team; grow increase replica resize scale; head header
    heading title; heap leak memory; hex hexadecimal; hierarchy nested org organization tree; hit press push; icon
    shape symbol; image thumbnail; image visual; import load read upload; index stage; insert place position;
    install setup; internet url web website; interpreter python repl session; item product; item record row;
    javascript js script; json xml yaml; jwt sign token; keep remember save store write; key keyboard; label tag;
    last latest previous recent; line paragraph row text; local localhost; lock password protect; log output print
    stdout; log record track; lost recover reflog restore; lower reduce shrink; macro vba; margin padding; measure
    metric statistic; message notification; move relocate rename; nested recursive tree; network request traffic;
    origin remote upstream; outline overview structure summary; part piece proportion share; path route trip; pr
    pull; print show; process task; project repo repository; push send upload; raw source xml; reason think; refresh
    reload restart; release tag version; reset revert undo unstage; restart rollout; revision version; secure strong
    weak; sequential step think; server service; string text; until wait; viewport window; web www; wide width
"""
"""Words that mean nearly the same of tools; a word may be in several groups, which stand between semicolons."""
_K1, _B = 4.0, 0.2
_BEGINNING = 200
"""Characters of a description in which it says what the tool is for."""
_FIELDS = {
    "name": (3.0, 1.0),
    "server": (2.0, 0.8),
    "beginning": (2.0, 1.0),
    "rest": (1.0, 0.6),
    "argument": (0.4, 0.5),
}
"""The weights of a word by field: how often it counts, and how much it says of what the tool is for."""
_OF_ALIKE = 0.6
"""The fraction of a word's score that a synonym has."""
_OF_NUMBERS = 0.3
"""The weight of numbers in a question: they are what a tool is given."""
_OF_NAME = 0.5
"""The share of a tool's score that it has only if its whole name was asked for."""
_OF_OTHERS = 0.5
"""The share of its score that a tool of another server has than the question names."""
_OF_UNKNOWN = 0.87
"""The weight of a word that no tool has, beside one that hardly any has."""
_FITS, _FITS_WORDINGS = 0.6, 0.7
"""The share of a question's weight that a tool must have to fit; and on average where there are several wordings."""
_NAMED, _LESS_IF_NAMED = 0.5, 0.1
"""The share of its name that must be asked for so that so much less of the question must fit."""
_MOST_WORDINGS, _MOST_WORDS = 5, 50
"""Wordings of a query that count, and distinct words in all of them."""
_OF_RANKS = 2
"""The constant of reciprocal rank fusion: the larger, the less the first ranks count."""
_NEAR = 0.35
"""The share of the best tool's score that another must have to be shown beside it."""


class Tool(NamedTuple):
    """The searchable text of one tool."""

    name: str
    server: str
    description: str
    arguments: Sequence[str]


class _Match(NamedTuple):
    """How a tool fits a wording: its score, and the shares of the wording and of the tool's own name that fit."""

    score: float
    covered: float
    named: float


class Ranked(NamedTuple):
    """The numbers of tools, the best first, and whether one of them fits."""

    numbers: list[int]
    fits: bool


def searched(name: str, server: str, component: Mapping[str, Any]) -> Tool:
    """The texts of a tool, as listed."""
    schema, description = component.get("inputSchema"), component.get("description")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    texts: list[str] = []
    for argument, about in (properties if isinstance(properties, Mapping) else {}).items():
        texts.append(argument)
        if isinstance(about, Mapping) and isinstance(about.get("description"), str):
            texts.append(about["description"])
    title = component.get("title")
    described = [text for text in (title, description) if isinstance(text, str)]
    return Tool(name, server, "\n".join(described), texts)


class ToolRanking:
    """Made once for a list of tools; a search costs as much as there are tools that have one of its words."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        known = list(tools)
        weights = [_weights(tool) for tool in known]
        lengths = [sum(weight for weight, _ in each.values()) for each in weights]
        average = sum(lengths) / len(lengths) if lengths else 1.0
        self._having: defaultdict[str, dict[int, tuple[float, float]]] = defaultdict(dict)
        """By word, the tools that have it, with score and the share in a tool's purpose."""
        self._in_name: defaultdict[str, set[int]] = defaultdict(set)
        self._number = len(weights)
        for number, (each, length) in enumerate(zip(weights, lengths, strict=True)):
            norm = _K1 * (1 - _B + _B * length / average)
            for word, (weight, share) in each.items():
                self._having[word][number] = weight * (_K1 + 1) / (weight + norm), share
        for number, tool in enumerate(known):
            for word in words_of(tool.name):
                self._in_name[word].add(number)
        self._servers = [tool.server.lower() for tool in known]
        self._names = [0.0] * self._number
        for word, numbers in self._in_name.items():
            for number in numbers:
                self._names[number] += self._rarity(word)

    def best(self, question: str, most: int) -> Ranked:
        """The tools that fit best, or are the nearest of all where none fits."""
        wordings = [part for part in question.split(";") if part.strip()][:_MOST_WORDINGS]
        found = [self._matches(part, _MOST_WORDS // len(wordings)) for part in wordings]
        fused: defaultdict[int, float] = defaultdict(float)
        near: set[int] = set()
        for matches in found:
            ranked = sorted(matches, key=lambda number: (-matches[number].score, number))[:most]
            near.update(each for each in ranked if matches[each].score >= _NEAR * matches[ranked[0]].score)
            for rank, number in enumerate(ranked):
                fused[number] += 1 / (_OF_RANKS + rank)
        numbers = sorted(fused, key=lambda number: (-fused[number], number))[:most]
        if not any(
            _fits([matches[number] for matches in found if number in matches], len(found)) for number in numbers
        ):
            return Ranked(numbers, fits=False)
        return Ranked([number for number in numbers if number in near], fits=True)

    def _matches(self, wording: str, most_words: int) -> dict[int, _Match]:
        scores: defaultdict[int, float] = defaultdict(float)
        covered: defaultdict[int, float] = defaultdict(float)
        whole = 0.0
        asked = _asked(wording, most_words)
        joined = _joined(list(asked))
        for word, share_of_word in asked.items():
            rarity, found = self._of_word(word, [*_alike().get(word, ()), *joined.get(word, ())])
            weight = rarity * share_of_word
            whole += weight
            for number, (score, share) in found.items():
                scores[number] += weight * score
                covered[number] += weight * share
        servers = self._servers_in(wording)
        matches = {}
        for number, score in scores.items():
            share, named = covered[number] / whole, self._share_of_name(number, asked, joined)
            of_other = _OF_OTHERS if servers and self._servers[number] not in servers else 1.0
            matches[number] = _Match(score * share * (1 - _OF_NAME + _OF_NAME * named) * of_other, share, named)
        return matches

    def _servers_in(self, question: str) -> set[str]:
        return set(re.findall(r"[\w-]+", question.lower())) & set(self._servers)

    def _share_of_name(self, number: int, asked: Iterable[str], joined: Mapping[str, Sequence[str]]) -> float:
        found: dict[str, float] = {}
        for word in asked:
            if number in self._in_name.get(word, ()):
                found[word] = 1.0
            for other in (*_alike().get(word, ()), *joined.get(word, ())):
                if number in self._in_name.get(other, ()):
                    found[other] = max(found.get(other, 0.0), 0.8)
        whole = self._names[number]
        return sum(share * self._rarity(word) for word, share in found.items()) / whole if whole else 0.0

    def _of_word(self, word: str, alike: Sequence[str]) -> tuple[float, dict[int, tuple[float, float]]]:
        """The weight of a word, and the part of it that each tool has with it or one alike."""
        found = dict(self._having.get(word, {}))
        weights = [self._rarity(word)] if found else []
        for other in alike:
            if others := self._having.get(other):
                weights.append(self._rarity(other))
            for number, (score, share) in (others or {}).items():
                known = found.get(number, (0.0, 0.0))
                found[number] = max(known[0], score * _OF_ALIKE), max(known[1], share * 0.9)
        return (weights[0] if weights else _OF_UNKNOWN * self._rarity(word)), found

    def _rarity(self, word: str) -> float:
        having = len(self._having.get(word, ()))
        return math.log(1 + (self._number - having + 0.5) / (having + 0.5))


def _fits(matches: Sequence[_Match], wordings: int) -> bool:
    """True if a tool fits enough of the query, taken over all wordings."""
    covered = sum(match.covered for match in matches) / wordings
    named = sum(match.named for match in matches) / wordings
    enough = _FITS if wordings == 1 else _FITS_WORDINGS
    return covered >= (enough - _LESS_IF_NAMED if named >= _NAMED else enough)


def words_of(text: str) -> Iterator[str]:
    """The stems of a text's words, without those that say nothing."""
    for word in _WORD.findall(text):
        if word.lower() not in _STOP:
            yield _stem(word.lower())


def _asked(wording: str, most: int) -> dict[str, float]:
    """The first words of a wording, and how much each counts."""
    stems = islice(dict.fromkeys(words_of(wording)), most)
    return {stem: _OF_NUMBERS if stem[0].isdigit() else 1.0 for stem in stems}


def _weights(tool: Tool) -> dict[str, tuple[float, float]]:
    texts = [("name", tool.name), ("server", tool.server)]
    texts += [("beginning", tool.description[:_BEGINNING]), ("rest", tool.description[_BEGINNING:])]
    texts += [("argument", text) for text in tool.arguments]
    weights: dict[str, tuple[float, float]] = {}
    for field, text in texts:
        weight, share = _FIELDS[field]
        for word in words_of(text):
            known = weights.get(word, (0.0, 0.0))
            weights[word] = known[0] + weight, max(known[1], share)
    return weights


def _joined(words: Sequence[str]) -> dict[str, list[str]]:
    """By word, its compounds with the next: `log work`, `worklog`."""
    joined: defaultdict[str, list[str]] = defaultdict(list)
    for one, other in pairwise(words):
        for word in (one, other):
            joined[word] += [one + other, other + one]
    return joined


@lru_cache(maxsize=20_000)
def _stem(word: str) -> str:
    """A word without the usual endings of English."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + ("y" if ending in ("ies", "ied") else "")
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


@lru_cache(maxsize=1)
def _alike() -> Mapping[str, Sequence[str]]:
    alike: defaultdict[str, set[str]] = defaultdict(set)
    for group in _ALIKE.split(";"):
        stems = {_stem(word) for word in group.split()}
        for stem in stems:
            alike[stem] |= stems - {stem}
    return {stem: sorted(others) for stem, others in alike.items()}
