"""Redaction of values from outside: what may be disclosed, and to whom. An allow-list by kind of field.

Theory. Whether a text is a secret cannot be told by looking at it. So nothing of a value is shown but the parts that
its kind of field allows: of a URL its host and well-known steps of its path, of an argument the name of an option, of a
variable or a header what refers to a variable. What is not shown is also what `import --secrets-as-variables` moves.
Words of servers and libraries, which are no values of the user, are shown on one line, with control characters escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from fastmcp_aggregator.config.expansion import own_text, without_defaults
from fastmcp_aggregator.escaping import printable

Field = Literal["command", "argument", "package", "value", "url", "folder", "text"]
Audience = Literal["terminal", "log", "local", "remote"]
"""The reader: of a command's output; of the log; of an error on this machine; any other, also of the dashboard,
`/status` and the audit log.
"""

DOTS = "•••"
TEXT_LIMIT = 2000
"""Characters of a text that are shown, at most."""
_WORDS: frozenset[Field] = frozenset({"text"})
_ALLOWED: Mapping[Audience, frozenset[Field]] = {
    "terminal": _WORDS | {"command", "argument", "package", "value", "url"},
    "log": _WORDS | {"command", "url"},
    "local": _WORDS | {"command", "url"},
    "remote": _WORDS,
}
_ORIGIN_ONLY: frozenset[Audience] = frozenset({"log", "local"})

_HARMLESS = re.compile(r"(?i)\s*(?:true|false|yes|no|on|off|none|null|trace|debug|info|warn|warning|error|\d{1,3})?\s*")
_SCHEME = re.compile(r"(?i)\s*(?:basic|bearer|token|apikey) +")
_COMMAND = re.compile(r"[\w./\\~+@%,(){}$:-]*")
_FLAG = re.compile(r"-[A-Za-z]{1,4}|--[a-z]{1,20}(?:-[a-z]{1,20}){0,5}")
_ASSIGNED = re.compile(
    r"(?:(?:--?[A-Za-z]{1,20}(?:-[A-Za-z]{1,20}){0,5}|[A-Za-z_]{1,40})=|[A-Za-z]{1,20}(?:-[A-Za-z]{1,20}){0,5}: ?)"
)
_VARIABLE = re.compile(r"[A-Z][A-Z_]{0,40}")
_WORD = frozenset([
    "run", "start", "serve", "server", "stdio", "http", "sse", "mcp", "dlx", "exec", "tool", "x", "/c", "-", ".",
])  # fmt: skip
_SCRIPT = re.compile(r"(?:.*(?=[/\\]))?(?=([/\\]?[A-Za-z_-]{1,32}\d{0,2}\.(?:py|js|mjs|cjs|ts|sh|rb|jar))$)", re.DOTALL)
_FOLDERS = re.compile(r"(?:\./)?[a-z_]{1,16}(?:/[a-z_]{1,16}){0,3}")
_URL = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]{0,20}://(?P<authority>[^/?#]*)|(?=\$))(?P<path>[^?#]*)(?P<rest>.*)", re.DOTALL
)
_HOST = re.compile(r"[A-Za-z0-9.:\[\]_-]*")
_STEP = re.compile(r"(?i)mcp|sse|api|v\d{1,2}|messages?|http|stream|rpc|servers?|tools|public")
_QUERY_NAME = re.compile(r"[?&#][A-Za-z_-]{1,32}=")
_PACKAGE_PART = re.compile(r"[a-z]{0,24}\d{0,2}[a-z]{0,24}")
_VERSION = re.compile(r"[\^~=]{0,2}v?\d{1,4}(?:\.\d{1,4}){0,3}(?:[.-]?[a-z]{1,6}\.?\d{0,3})?|latest|next|beta")
_RUNNERS = frozenset([
    "npx", "bunx", "pnpm", "yarn", "npm", "bun", "deno", "uvx", "uv", "pipx", "cmd", "docker", "podman", "python",
    "python3", "py",
])  # fmt: skip
_BEFORE_PACKAGE = frozenset([
    "-y", "--yes", "-q", "--quiet", "--from", "--package", "--spec", "-m", "--offline", "--isolated", "--rm", "-i",
    "-it",
])  # fmt: skip


class Hidden(NamedTuple):
    """A part of a text, from `start` to `end`, that is not shown; `hint` is a word for its kind."""

    start: int
    end: int
    hint: str


def shown(field: Field, text: str, to: Audience) -> str:
    """The one place that decides what of a value from outside is shown: on one line, of limited length."""
    if field not in _ALLOWED[to]:
        return DOTS
    if field not in _WORDS:
        text = without_defaults(text)
    if field == "url" and to in _ORIGIN_ONLY:
        origin = _URL.match(text)
        text = text[: origin.end("authority")] if origin and origin["authority"] else ""
    plain = printable(replaced(text, hidden_in(field, text), lambda _, __: DOTS))
    return plain if len(plain) <= TEXT_LIMIT else f"{plain[: TEXT_LIMIT - 1]}…"


def hidden_in(field: Field, text: str, name: str = "") -> list[Hidden]:
    """The parts of a value that are shown to nobody, in order. `name` is that of its variable, header or option."""
    if field in _WORDS:
        return []
    return list(_within(text, _PARTS[field](text), name))


def replaced(text: str, hidden: Sequence[Hidden], by: Callable[[str, str], str]) -> str:
    """The text with what `by` returns, for a hidden part and its hint, in place of each."""
    pieces, end = [], 0
    for part in hidden:
        pieces += [text[end : part.start], by(text[part.start : part.end], part.hint)]
        end = part.end
    return "".join([*pieces, text[end:]])


def fields_of(command: str, arguments: Sequence[object]) -> list[Field]:
    """The kind of each argument of a command: the package that a known runner runs, or anything."""
    runner = PurePosixPath(command.replace("\\", "/")).stem.lower()
    fields: list[Field] = ["argument"] * len(arguments)
    if runner not in _RUNNERS:
        return fields
    for index, argument in enumerate(arguments):
        before = arguments[index - 1] if index else "-y"
        if isinstance(argument, str) and _may_be_package(runner, argument, before):
            fields[index] = "package"
            break
    return fields


def _may_be_package(runner: str, argument: str, before: object) -> bool:
    if argument in _WORD or argument in _RUNNERS or argument.startswith("-"):
        return False
    if runner.startswith("py"):
        return before == "-m"
    if runner in ("docker", "podman"):
        return "/" in argument and _is_package(argument)
    return before in _BEFORE_PACKAGE or before in _WORD or before in _RUNNERS


def _within(text: str, parts: Iterator[Hidden], name: str) -> Iterator[Hidden]:
    """The secret parts of a text that are its own: a reference to a variable may be shown."""
    own = list(own_text(text))
    index = 0
    for part in parts:
        while index < len(own) and own[index][0] < part.end:
            start, end = max(part.start, own[index][0]), min(part.end, own[index][1])
            if start < end:
                scheme = _SCHEME.match(text[start:end])
                begins = start + (scheme.end() if scheme else 0)
                if begins < end and not _HARMLESS.fullmatch(text[start:end]):
                    yield Hidden(begins, end, part.hint or name or "secret")
            if own[index][1] > part.end:
                break  # the next part may begin in it
            index += 1


def _all(text: str) -> Iterator[Hidden]:
    yield Hidden(0, len(text), "")


def _in_command(text: str) -> Iterator[Hidden]:
    """A program, with its path; what follows a space is an argument that somebody has written in the wrong place."""
    found = _COMMAND.match(text)
    assert found is not None
    yield Hidden(0 if "://" in text else found.end(), len(text), "command")


def _in_package(text: str) -> Iterator[Hidden]:
    if not _is_package(text):
        yield Hidden(0, len(text), "package")


def _is_package(text: str) -> bool:
    """True if it is a name in lower case, of words with two digits at most, perhaps with a scope and a version."""
    name, _, version = text[1:].partition("@") if text.startswith("@") else re.sub("==|:", "@", text).partition("@")
    parts = re.split(r"[/._-]", re.sub(r"\[([a-z,-]+)\]$", r"-\1", name))
    return all(map(_PACKAGE_PART.fullmatch, parts)) and (not version or _VERSION.fullmatch(version) is not None)


def _in_argument(text: str) -> Iterator[Hidden]:
    if _FLAG.fullmatch(text) or text in _WORD or text in _RUNNERS or _VARIABLE.fullmatch(text):
        return
    url = _URL.match(text)
    assigned = _ASSIGNED.match(text)
    if url is not None and url["authority"] is not None:
        yield from _in_url(text)
    elif assigned and _URL.match(text, assigned.end()):
        parts = _in_url(text[assigned.end() :])
        yield from (Hidden(part.start + assigned.end(), part.end + assigned.end(), part.hint) for part in parts)
    elif assigned:
        yield Hidden(assigned.end(), len(text), assigned[0].lstrip("-").rstrip(": ="))
    else:
        script = _SCRIPT.match(text)
        end = script.end() if script else len(text)
        yield Hidden(0, 0 if script and _FOLDERS.fullmatch(text, 0, end) else end, "")


def _in_url(text: str) -> Iterator[Hidden]:
    found = _URL.match(text)
    if found is None:
        yield Hidden(0, len(text), "url")
        return
    if found["authority"] is not None:
        yield from _in_authority(found["authority"], found.start("authority"))
    position = found.start("path")
    for step in found["path"].split("/"):
        if step and not _STEP.fullmatch(step):
            yield Hidden(position, position + len(step), "path")
        position += len(step) + 1
    position = found.start("rest")
    for part in re.split(r"(?=[?&#])", found["rest"]):
        named = _QUERY_NAME.match(part)
        begins = position + (named.end() if named else min(1, len(part)))
        if begins < position + len(part):
            yield Hidden(begins, position + len(part), named[0][1:-1] if named else "query")
        position += len(part)


def _in_authority(authority: str, position: int) -> Iterator[Hidden]:
    user_info, at, host = authority.rpartition("@")
    user, colon, password = user_info.partition(":")
    if user:
        yield Hidden(position, position + len(user), "user" if colon else "token")
    if password:
        yield Hidden(position + len(user) + 1, position + len(user_info), "password")
    if not _HOST.fullmatch(re.sub(r"\$\{?\w+\}?", "", host)):
        start = position + len(user_info) + len(at)
        yield Hidden(start, start + len(host), "host")


_PARTS = {
    "command": _in_command,
    "argument": _in_argument,
    "package": _in_package,
    "value": _all,
    "folder": _all,
    "url": _in_url,
}
