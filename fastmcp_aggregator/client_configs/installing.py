"""The aggregator in a client's file: what is put there, and how the file becomes again what it was.

Theory. A backup is written beside the file before the first change. Whether the file has changed since needs no record:
if the backup with our entry of now put into it, and without the entries that are gone, is the file of now, nothing else
has changed, and the backup goes back byte for byte. Otherwise only our entry is taken out. A file that did not exist
has no backup, and is held against an empty text in the same way.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmcp_aggregator.client_configs.documents import read, with_entry, without_entry
from fastmcp_aggregator.client_configs.found import is_aggregator
from fastmcp_aggregator.client_configs.known import STANDARD, ClientConfig
from fastmcp_aggregator.client_configs.secrets import shown_texts
from fastmcp_aggregator.client_configs.translation import translated, with_texts
from fastmcp_aggregator.config.disclosure import DOTS, hidden_in
from fastmcp_aggregator.config.documents import MAX_BYTES
from fastmcp_aggregator.config.expansion import Measured, TooLong, expand
from fastmcp_aggregator.early.reading import read_bytes
from fastmcp_aggregator.errors import AggregatorError, ConfigError, ConfigProblem
from fastmcp_aggregator.files.atomic import PRIVATE, require_no_link_to_nothing, staged
from fastmcp_aggregator.files.locked import locked
from fastmcp_aggregator.version import PROGRAM, VERSION

_BACKUP_SUFFIX = f".before-{PROGRAM}"
_EPHEMERAL = re.compile(r"[/\\](archive|builds|environments)-v\d+[/\\]")
_SHOWN = re.compile(
    r"""
      [\s\[\]{},]+ | (?:true|false|null)(?![\w"'-])                     # what holds values, and these three
    | "[\w./ :@+-]{1,64}" \s*:\s*                                      # the name of a value
    | (?:"[\w./ :@+-]{1,64}" | [A-Za-z_][\w.-]{0,63}) \s+=\s
    | (?<=\[) [A-Za-z_][\w."-]{0,63} (?=\]$)                             # the name of a table
    """,
    re.VERBOSE,
)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_NUMBER = re.compile(r"\d+(?![\w.])")


class FileChanged(AggregatorError):
    """Somebody has written a client's file since it was read."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a client's file. `before` is None if there is no file yet, `after` if there is to be none."""

    path: Path
    before: str | None
    after: str | None


def launch_command() -> list[str]:
    """The command that starts this program for a client that knows neither our shell nor our folder.

    An environment that uv made for one run may be gone tomorrow; then it is `uvx` that starts the program. Nothing is
    imported from the client's working folder, which may be somebody's repository: -P.
    """
    if _EPHEMERAL.search(sys.prefix) and (uvx := shutil.which("uvx")):
        return [uvx, "--from", f"{PROGRAM}=={VERSION}", PROGRAM]
    script = Path(sys.executable).with_name(PROGRAM + (".exe" if sys.platform == "win32" else ""))
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "fastmcp_aggregator"]


def search_path(environ: Mapping[str, str]) -> str:
    """The folders in which this shell finds commands: a desktop client's own list lacks most of them."""
    folders = [folder for folder in environ.get("PATH", "").split(os.pathsep) if Path(folder).is_absolute()]
    return os.pathsep.join(dict.fromkeys(folder for folder in folders if Path(folder).is_dir()))


def entry_for(client: ClientConfig, arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """The entry that has the client start the aggregator with these arguments."""
    command, *first = launch_command()
    return {**client.entry, "command": command, "args": [*first, *arguments], "env": {"PATH": search_path(environ)}}


def installation(
    client: ClientConfig,
    path: Path,
    name: str,
    entry: Mapping[str, Any],
    moved: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Change:
    """The change that puts the entry into the client's file, and takes those out that are the same as one of `moved`,
    with the variables that it is served with.

    Raises:
        ConfigError: the file is not what it should be.
        AggregatorError: another server has this name there.
    """
    before = _text(path)
    known = entries_of(client, before, path)
    if name in known and not is_aggregator(known[name]):
        raise AggregatorError(f"{path} has another server {name!r}; give --name to choose another name")
    others = {key: other for key, other in known.items() if key != name}
    try:
        after = _installed(client, before or "", name, entry, told_apart(client, others, moved or {}, environ or {})[0])
    except ValueError as error:
        raise _unusable(path, error) from None
    return Change(path, before, after)


def _installed(client: ClientConfig, text: str, name: str, entry: Mapping[str, Any], moved: Iterable[str]) -> str:
    text = with_entry(text, client.format, [client.servers_key], name, entry)
    for key in moved:
        text = without_entry(text, client.format, [client.servers_key], key)
    return text


def removal(client: ClientConfig, path: Path, name: str) -> tuple[Change, bool]:
    """The change that takes the entry out of the client's file, and whether this restores the file.

    If others have changed the file since, servers come back that the backup has and the file has not; but no
    aggregator, which was taken out by itself.

    Raises:
        ConfigError: the file is not what it should be.
    """
    now = _text(path)
    entry = entries_of(client, now, path).get(name)
    if entry is None or not is_aggregator(entry):
        return Change(path, now, now), False
    assert now is not None
    backup = _text(_own_backup(path))
    there, earlier = entries_of(client, now, path), entries_of(client, backup, path)
    moved = [key for key in earlier if key not in there and not is_aggregator(earlier[key])]
    if _installed(client, backup or "", name, entry, moved) == now:
        return Change(path, now, backup), True
    after = without_entry(now, client.format, [client.servers_key], name)
    for key in moved:
        after = with_entry(after, client.format, [client.servers_key], key, earlier[key])
    return Change(path, now, after), False


def told_apart(
    client: ClientConfig, theirs: Mapping[str, Any], ours: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The names of a client's entries that are in our config as well, and of those that only share a name.

    A variable is the same as its value in `environ`.
    """
    bounded = Measured(environ)

    def meant(text: str) -> Any:
        """The value of a text; one that does not parse is equal to nothing but itself."""
        try:
            found = expand(text, bounded)
        except TooLong:
            return (text,)
        return (text,) if found.missing or found.is_malformed else found.value

    served = [found for entry in ours.values() if (found := translated(entry, STANDARD, None).entry) is not None]
    known = [with_texts(entry, meant) for entry in served]
    same = [name for name, entry in theirs.items() if with_texts(translated(entry, client, None).entry, meant) in known]
    return same, [name for name in theirs if name in ours and name not in same]


def backup_of(path: Path) -> Path:
    """The path of the backup of a client's file."""
    return path.with_name(path.name + _BACKUP_SUFFIX)


def entries_of(client: ClientConfig, text: str | None, path: Path) -> Mapping[str, Any]:
    """The servers in the text of a client's file. Raises ConfigError: it is not what it should be."""
    if not (text or "").strip():
        return {}
    entries = read(text or "", client.format, str(path)).get(client.servers_key)
    return entries if isinstance(entries, dict) else {}


def apply(change: Change, *, keeps_backup: bool) -> Path | None:
    """Make a change; the path of a backup if one was written. A backup that is there is kept if so told.

    Otherwise it is of an earlier installation, and keeps its text under a number: nobody else may have that.

    Raises:
        FileChanged: the file is not what the change was made of; nothing was written.
        AggregatorError: something cannot be written.
    """
    backup = _own_backup(change.path)
    writes_backup = change.before is not None and not (keeps_backup and backup.exists())
    copies = [(backup, change.before or "")] if writes_backup else []
    earlier = _text(backup) if writes_backup else None
    if earlier is not None and earlier != change.before:
        copies.insert(0, (_free_backup(backup, earlier), earlier))
    _make(change, *copies)
    return backup if writes_backup else None


def _free_backup(backup: Path, text: str) -> Path:
    """The path of an earlier backup: the one with the same content, or a new one."""
    numbered = (backup.with_name(f"{backup.name}-{number}") for number in itertools.count(1))
    return next(path for path in numbered if not path.is_symlink() and _text(path) in (None, text))


def _own_backup(path: Path) -> Path:
    """The path of the backup, which is never a link: one may have come with somebody's repository, and lead anywhere.

    Raises:
        AggregatorError: there is a link.
    """
    backup = backup_of(path)
    if backup.is_symlink():
        raise AggregatorError(f"{backup} is a link, and no backup of ours; remove it")
    return backup


def restore(change: Change, *, is_exact: bool) -> None:
    """Make the change of a removal. The backup goes with it if it has been put back.

    Raises:
        FileChanged: the file is not what the change was made of; nothing was written.
        AggregatorError: something cannot be written.
    """
    _make(change)
    if is_exact:
        with _words_for(change.path):
            backup_of(change.path).unlink(missing_ok=True)


def _make(change: Change, *copies: tuple[Path, str]) -> None:
    """Write the copies and the file, or nothing if somebody has written the file since it was read.

    Everything is on the disk before the last look at the file, so that a rename is all that comes after it.
    """
    with _words_for(change.path), ExitStack() as stack:
        require_no_link_to_nothing(change.path)
        change.path.parent.mkdir(parents=True, exist_ok=True)
        mode = PRIVATE if change.before is None else _mode_of(change.path)
        if not mode & stat.S_IWUSR:
            raise AggregatorError(f"{change.path} is read-only; make it writable first, if it is yours to change")
        steps = [stack.enter_context(staged(path, text, mode=mode)) for path, text in copies]
        if change.after is None:
            steps.append(change.path.unlink)
        else:
            steps.append(stack.enter_context(staged(change.path, change.after, mode=mode)))
        stack.enter_context(locked(change.path))
        if _text(change.path) != change.before:
            raise FileChanged(f"{change.path} was changed meanwhile")
        for step in steps:
            step()


def _mode_of(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return PRIVATE


@contextmanager
def _words_for(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AggregatorError(f"cannot write {path}: {error.strerror}") from None


def shown_diff(change: Change, client: ClientConfig, ours: Mapping[str, Any]) -> Iterator[str]:
    """The difference line by line; what may not be shown, and is not in `ours`, is dots. Of a file of one line it is
    that of its values, one a line.
    """
    texts = [change.before or "", change.after or ""]
    documents = [_document(client, text, change.path) for text in texts]
    if client.format == "json" and any(text.strip() and "\n" not in text.strip() for text in texts):
        texts = [json.dumps(each, indent=2, ensure_ascii=False) if each else "" for each in documents]
    before, after = (text.splitlines() for text in texts)
    own = {*_texts(ours), *(text for document in documents for text in _plain(document))}
    models = [model for document in documents if isinstance(model := document.get("model"), str)]
    own.update(model for model in models if not hidden_in("package", model))
    for line in difflib.unified_diff(before, after, str(change.path), str(change.path), n=2, lineterm=""):
        is_heading = line.startswith(("---", "+++", "@@"))
        yield line if is_heading else line[:1] + _shown_line(line[1:], own)


def _shown_line(line: str, own: set[str]) -> str:
    shown, position = "", 0
    while position < len(line):
        text = _TEXT.match(line, position)
        found = _SHOWN.match(line, position)
        number = _NUMBER.match(line, position)
        if number is not None and number[0] in own:
            found = number
        if found is None and text is not None and text[0][1:-1].replace("\\\\", "\\") in own:
            found = text
        if found is not None:
            shown, position = shown + found[0], found.end()
        elif text is not None:
            shown, position = f'{shown}"{DOTS}"', text.end()
        else:  # a comment, a number, or a part of a text of several lines
            return shown + DOTS
    return shown


def _document(client: ClientConfig, text: str, path: Path) -> Mapping[str, Any]:
    with suppress(ConfigError):
        return read(text, client.format, str(path)) if text.strip() else {}
    return {}


def _plain(value: Any) -> Iterator[str]:
    """The texts and numbers in a client's file that may be shown as they are."""
    if isinstance(value, Mapping):
        yield from shown_texts(value)
        for item in value.values():
            yield from _plain(item)
    elif isinstance(value, list):
        for item in value:
            yield from _plain(item)
    elif isinstance(value, str | int) and not hidden_in("value", str(value)):
        yield str(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str | int):
        yield str(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _text(path: Path) -> str | None:
    """The text exactly as it is, byte order mark and line ends included; None if there is no file."""
    try:
        data = read_bytes(path, MAX_BYTES + 1)
        text = data.decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise AggregatorError(f"{path} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise AggregatorError(f"{path} cannot be changed: it is larger than 10 MiB")
    return text


def _unusable(path: Path, error: ValueError) -> ConfigError:
    return ConfigError(str(path), [ConfigProblem("invalid_json", "$", f"cannot be changed: {error}")])
