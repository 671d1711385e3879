"""The summary of a crash: what the last lines on stderr say about it, in one line. Pure.

Theory. The last line is often not the one that tells: stack frames, the version of Node, where npm keeps its log, and
hints on `--help` come after it. These are left out from the end. What is then last is taken with what it belongs to:
the exception of a traceback, the first words of npm, the line under which it is indented. If it is a record of the log
that is no more than information, or says that the server runs, it is no reason: then an error before it is taken, or
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, takewhile

from fastmcp_aggregator.escaping import printable

LONGEST_SUMMARY = 300
_LONGEST_LINE = 1000
_MOST_TOGETHER = 12
"""Lines that may belong together."""

_COLOURS = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_GROUP_EDGE = re.compile(r"\A\s{0,40}(?:\+-)?[+|](?: |-+|$)")
"""The prefix of each line of the traceback of an exception group."""
_BOX = str.maketrans(dict.fromkeys("│┃┆┊╭╮╰╯┌┐└┘├┤─━┄▶►", " "))
_NOISE = re.compile(
    r"""\s*(?:
        [\W\d_]*                                       # a frame, a bracket, carets under a column, a number
      | at\s.+                                         # a stack frame of JavaScript
      | Emitted\ 'error'\ event\ .*
      | Require\ stack: | -\ [/\\].*
      | Node\.js\ v\d.*
      | npm\ (?:warn|notice|WARN|info)\b.*
      | npm\ (?:error|ERR!)(?:
            \s*\d{0,3}\s*
          | \s+(?:code|errno|syscall|path|dest|command|signal|workspace|location|spawnargs|cwd)\b.*
          | \s+A\ complete\ log\ .* | \s+[/~].* | \s+[A-Z]:\\.* | \s+Lifecycle\ script\ .*
        )
      | (?:hint|help|note):\ .*
      | (?:Usage|usage):\ .* | (?:See|Run|Try)\ ['"`].*
      | (?:.{0,300}:\ )?\w{0,40}Warning:\ .* | warnings\.warn\(.*
      | goroutine\ \d+\ \[.* | [\w./*()]{1,200}\(\S*\) | \t.+:\d+(?:\ \+0x\w+)? | exit\ status\ \d+
    )\s*""",
    re.VERBOSE,
)
_NPM = re.compile(r"\s*npm (?:error|ERR!) ")
_TRACEBACK = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\):")
_HEAD = re.compile(r"\s*(?:×|✖|error\b|Error\b)")
"""The start of a message, however far it is indented."""

_ONLY_INFORMS = r"TRACE|DEBUG|INFO|NOTICE|trace|debug|info|notice|Trace|Debug|Info|Notice"
_IS_ERROR = r"ERROR|CRITICAL|FATAL|SEVERE|error|critical|fatal|Error|Critical|Fatal"
_RECORD = re.compile(
    rf"""\s{{0,80}}(?:
        (?:(?:time|ts)=\S{{1,40}}\ )?
        (?P<time>[\[(<]?\d[\d/:.,TZ+-]{{3,30}}(?:\ [\d:.,Z+]{{4,20}})?[\])>]?[\s|:-]{{1,6}})?
        (?:[\[(<]?[\w.]{{1,60}}[\])>]?\s{{0,8}}[|:-]{{1,2}}\s{{0,8}}){{0,3}}?  # names, each before a separator
        [\[(<|]?(?:level=)?"?
        (?:(?P<informs>{_ONLY_INFORMS})|(?P<fails>{_IS_ERROR}))
        (?(time)(?![\w=])|(?:\s{{0,8}}[\])>|:"]|\s+-\s|\s{{2,}}|\ msg=))
      | \{{.{{0,500}}?"(?:level|severity|levelname)":\ ?
        (?:"(?P<json_informs>{_ONLY_INFORMS})"|"(?P<json_fails>{_IS_ERROR})"|(?P<number_informs>[123]0)\b|[56]0\b)
    )""",
    re.VERBOSE,
)
"""A record of a log, in the layouts that are common: of Python, rich, Node, Go and Rust, or as JSON."""
_RUNS = re.compile(
    r"(?i)(?!.*\b(?:not|cannot|can't|fail\w*|error|unable)\b)"
    r".{0,200}\b(?:running|started|listening|ready|serving|connected)\b.{0,40}\bstdio\b"
)
_FAILS = re.compile(
    r"\s{0,40}(?:[\w.$]{0,80}(?:Error|Exception|Panic)\b|(?:error|fatal|panic)\b|[×✖]|npm (?:error|ERR!))"
    r"|thread '.*panicked|.{0,80}\b(?:error|fatal):"
)


def summary_of(lines: Sequence[str]) -> str | None:
    """A summary of the last of these lines, or None if they say nothing; without control characters."""
    kept = _up_to_error(_without_noise_at_end([_plain(line) for line in lines]))
    if not kept:
        return None
    text = " ".join(line.strip() for line in kept[_beginning(kept) :] if line.strip())
    if _NPM.match(kept[-1]):
        text = _first_of_npm(kept)
    escaped = printable(" ".join(text.split()))
    return escaped if len(escaped) <= LONGEST_SUMMARY else f"{escaped[: LONGEST_SUMMARY - 1]}…"


def _plain(line: str) -> str:
    text = _COLOURS.sub("", line[:_LONGEST_LINE])
    return _GROUP_EDGE.sub("", text, count=1).translate(_BOX).rstrip()


def _is_noise(line: str) -> bool:
    return _NOISE.fullmatch(line) is not None


def _without_noise_at_end(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and _is_noise(lines[end - 1]):
        end = _start_of_properties(lines, end) if lines[end - 1] == "}" else end - 1
    return lines[:end]


def _up_to_error(lines: list[str]) -> list[str]:
    """The lines, if the last one may be the reason; else those up to the last error, of which there may be none."""
    informs = _which_inform(lines)
    if not (informs and informs[-1]):
        return lines
    end = len(lines)
    while end and (informs[end - 1] or _is_noise(lines[end - 1])):
        end -= 1
    kept = lines[:end]
    exception = _exception(kept)
    if exception is not None and end - exception <= _MOST_TOGETHER:
        return kept
    last = next((index for index in reversed(range(end)) if not informs[index] and _tells_error(lines[index])), None)
    if last is None:
        return []
    return lines[: last + 1 + sum(1 for _ in takewhile(_is_indented, kept[last + 1 :]))]


def _which_inform(lines: Sequence[str]) -> list[bool]:
    """True for each line that is information only; an indented line belongs to the line above it."""
    found: list[bool] = []
    for line in lines:
        record = _RECORD.match(line)
        if record is not None:
            found.append(any(record[name] for name in ("informs", "json_informs", "number_informs")))
        elif _is_indented(line):
            found.append(bool(found) and found[-1])
        else:
            found.append(_RUNS.match(line) is not None)
    return found


def _is_indented(line: str) -> bool:
    return line.startswith((" ", "\t")) and bool(line.strip())


def _tells_error(line: str) -> bool:
    return _RECORD.match(line) is not None or _FAILS.match(line) is not None


def _start_of_properties(lines: Sequence[str], end: int) -> int:
    """Node prints the properties of an error behind its last stack frame, in braces that open there."""
    for index in range(end - 2, max(-1, end - 2 - 50), -1):
        if not lines[index].startswith(" "):
            break
        if lines[index].endswith("{"):
            return index if _is_noise(lines[index]) else end - 1
    return end - 1


def _beginning(kept: Sequence[str]) -> int:
    """The line with which that begins to which the last one belongs."""
    last = len(kept) - 1
    exception = _exception(kept)
    if exception is not None and last - exception < _MOST_TOGETHER:
        return exception
    index = last
    while kept[index].startswith((" ", "\t")) and not _HEAD.match(kept[index]):
        if index == 0 or last - index == _MOST_TOGETHER or not kept[index - 1].strip():
            break
        index -= 1
    return index


def _exception(kept: Sequence[str]) -> int | None:
    """The index of the exception of the last traceback: the first line after it that is not indented."""
    headers = [index for index, line in enumerate(kept) if _TRACEBACK.search(line)]
    if not headers:
        return None
    after = range(headers[-1] + 1, len(kept))
    return next((index for index in after if kept[index].strip() and not kept[index].startswith(" ")), None)


def _first_of_npm(kept: Sequence[str]) -> str:
    block = list(takewhile(_NPM.match, reversed(kept)))
    return next(islice((line.strip() for line in reversed(block) if not _is_noise(line)), 1))
