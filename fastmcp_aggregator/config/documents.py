"""Documents of the user, read and parsed, with every problem reported at its location instead of raised.

Nothing here lets an exception of the JSON parser out: it carries the whole text, with its secrets.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastmcp_aggregator.config.jsonc import JsonError, parse
from fastmcp_aggregator.early.reading import read_bytes
from fastmcp_aggregator.errors import ConfigError, ConfigErrorCode, ConfigProblem
from fastmcp_aggregator.escaping import json_text

MAX_BYTES = 10 * 1024 * 1024
MOST_PROBLEMS = 1000
"""Problems of one document; after so many, reading stops."""
PIPE_TIMEOUT = 10.0
Stamp = tuple[int, ...]
_HALF_PAIR = re.compile(r"\\[uU][dD]")
"""The beginning of an escape that may be half of a surrogate pair."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def path_step(step: object) -> str:
    """Format one step of a JSON path: `[1]` into a list, `.files` or `["my server"]` into an object."""
    if isinstance(step, int):
        return f"[{step}]"
    key = str(step)
    return f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{json_text(key)}]"


@dataclass(frozen=True, slots=True)
class Location:
    """A location in a document. All locations of one document share the list of its problems; `source` is its file."""

    source: str = ""
    path: str = "$"
    problems: list[ConfigProblem] = field(default_factory=list)

    def at(self, step: object) -> Location:
        return self.named(self.path + path_step(step))

    def named(self, path: str) -> Location:
        """Another location, by what it is called."""
        return Location(self.source, path, self.problems)

    def apart(self) -> Location:
        """The same location, with problems of its own."""
        return Location(self.source, self.path)

    def report(self, message: str, code: ConfigErrorCode = "invalid_schema") -> None:
        """Add a problem. Raises ConfigError: there are too many; with those before."""
        self.take([ConfigProblem(code, self.path, message)])

    def take(self, problems: Sequence[ConfigProblem]) -> None:
        """Add problems that were found apart. Raises ConfigError: as above."""
        self.problems.extend(problems)
        if len(self.problems) > MOST_PROBLEMS:
            raise ConfigError(self.source, self.problems)

    def raise_problems(self) -> None:
        """Raise a ConfigError with the problems of the document, if there are any."""
        if self.problems:
            raise ConfigError(self.source, self.problems)


def stamp_of(path: Path) -> Stamp:
    """Return what changes with a file, its owner or its mode; empty if there is no such file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return ()
    return (found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_text(path: Path, location: Location, *, waits: bool = True) -> str | None:
    """Read the text of a file, without a byte order mark; None if there is a problem. `waits`: it may be a pipe."""
    try:
        data = read_bytes(path, MAX_BYTES + 1, timeout=PIPE_TIMEOUT if waits else 0.0)
    except (OSError, ValueError) as error:
        location.report(_unreadable(path, error), code="file_not_found")
        return None
    if len(data) > MAX_BYTES:
        location.report("is larger than 10 MiB; check that this is the right file")
        return None
    return _decoded(data, location)


def text_of(path: Path) -> str:
    """Read the text of a file. Raises ConfigError: it cannot be read."""
    location = Location(str(path))
    text = read_text(path, location)
    location.raise_problems()
    return text or ""


def read_json(
    path: Path,
    location: Location,
    *,
    takes_half_pairs: bool = False,
    takes_comments: bool = False,
    waits: bool = True,
) -> Any:
    """Read a JSON file; None if there is a problem. What servers say may have half of a surrogate pair."""
    text = read_text(path, location, waits=waits)
    if text is None:
        return None
    return parse_json(text, location, takes_half_pairs=takes_half_pairs, takes_comments=takes_comments)


def parse_json(text: str, location: Location, *, takes_half_pairs: bool = False, takes_comments: bool = False) -> Any:
    """Parse JSON; None if there is a problem. What people write may have comments, and commas after last items."""
    try:
        value = _parsed(text, takes_comments=takes_comments)
        _report_repeated_keys(value, location)
    except JsonError as error:
        location.report(f"is not valid JSON {error}", code="invalid_json")
    except json.JSONDecodeError as error:
        location.report(
            f"is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}. "
            "Comments, single quotes and a comma after the last item are not allowed",
            code="invalid_json",
        )
    except (ValueError, RecursionError):
        location.report("cannot be read as JSON: it is nested too deeply or has an endless number", code="invalid_json")
    else:
        if takes_half_pairs or _HALF_PAIR.search(text) is None or _is_text(value):
            return value
        location.report("has half of a surrogate pair, such as \\ud800, which is no character", code="invalid_json")
    return None


def _parsed(text: str, *, takes_comments: bool) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Object)
    except json.JSONDecodeError:
        if not takes_comments:
            raise
    return parse(text).value(_Object)


def _is_text(value: Any) -> bool:
    """True if all of it can be written."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


class _Object(dict[str, Any]):
    """A JSON object that remembers the keys that were written more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: tuple[str, ...] = ()
        if len(pairs) > len(self):
            counts = Counter(key for key, _ in pairs)
            self.repeated = tuple(key for key, count in counts.items() if count > 1)


def _report_repeated_keys(value: object, location: Location) -> None:
    if isinstance(value, _Object):
        for key in value.repeated:
            location.at(key).report("is written more than once in the same object; keep one of them")
        for key, item in value.items():
            _report_repeated_keys(item, location.at(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _report_repeated_keys(item, location.at(index))


def _decoded(data: bytes, location: Location) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    location.report(f"is not valid UTF-8 at line {line}; save the file as UTF-8", code="invalid_json")
    return None


def _unreadable(path: Path, error: Exception) -> str:
    match error:
        case FileNotFoundError():
            return f"there is no file {path.absolute()}; check the path"
        case IsADirectoryError():
            return "is a directory; give the path of a file in it"
        case OSError():
            return f"cannot be read: {error.strerror}"
        case _:
            return "is not a path that a file can have"
