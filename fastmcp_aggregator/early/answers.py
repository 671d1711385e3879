"""The first answers of one command line: what a client was told in its last run, as the bytes of JSON results.

Theory. What a client is told first depends on the command line, on files (config, settings, groups, pins, the servers'
programs), on variables, on this version, and on what the client says of itself. All that is in the head of a file: the
files by size and time, the variables by a keyed digest. If any of it differs, there are no early answers. The head is
one line of JSON; the results follow, unparsed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from fastmcp_aggregator.early.reading import read_own
from fastmcp_aggregator.version import VERSION

try:
    from _blake2 import blake2b  # a third of what `hashlib` takes, which loads OpenSSL
except ImportError:
    from hashlib import blake2b

_FORMAT = 1
ANSWERS_SIZE_LIMIT = 64 * 1024**2
_MOST_FILES = 5000
"""Files that the answers may depend on, at most."""
_MOST_CLIENTS = 4
_SECRET, _SECRET_BYTES = "secret", 32
_OURS = "FASTMCP_AGGREGATOR_"
_OF_COMMANDS = "FASTMCP_AGGREGATOR_API_KEY"
"""The variable with the API key of commands that ask an instance; no setting."""
_ALWAYS = ("PATH", "HOME")
_VARIABLE = re.compile(r"\$\{?(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")

Entries = Mapping[str, Mapping[str, bytes]]
"""Results by the client's signature and the method, the last client last."""
FileState = tuple[str, int, int]
"""A file's path, size and time (ns); -1 for one that is not there."""


def cache_folder() -> str:
    """The user's cache folder of this program; the same as platformdirs says, which takes longer."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "").strip() or os.path.expanduser(r"~\AppData\Local")
        return os.path.join(base, "fastmcp-aggregator", "Cache")
    if sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
    return os.path.join(base, "fastmcp-aggregator")


def make_private(folder: str) -> None:
    """Make a folder and the one above, if they are not there, for this user alone, whatever the umask.

    Raises:
        OSError: that is not possible.
    """
    for each in (os.path.dirname(folder) or os.curdir, folder):
        os.makedirs(each, mode=0o700, exist_ok=True)


def signature_of(version: object, capabilities: object, info: Mapping[str, object]) -> str:
    """A digest of the parts of a client's handshake that the answers depend on."""
    about = {name: value for name, value in info.items() if name != "version"}
    return digest_of(json.dumps([version, capabilities, about], sort_keys=True).encode())


def variables_in(text: str) -> set[str]:
    """The variables that a config may use."""
    return set(_VARIABLE.findall(text))


def state_of(path: str) -> FileState:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return path, -1, -1
    return path, found.st_size, found.st_mtime_ns


class AnswersFile:
    """The answers of this command line. What they depend on is as it was when this was made."""

    def __init__(self, name: str, files: Iterable[str], variables: Iterable[str], environ: Mapping[str, str]) -> None:
        """`name` is that of a command line, or of a hub."""
        self.path = _path_of(name)
        self._files = [state_of(path) for path in sorted(set(files))]
        self._names = sorted(set(variables))
        self._environ = dict(environ)
        self._entries: dict[str, Mapping[str, bytes]] = dict(read(name) or {})

    def is_current(self) -> bool:
        return self._files == [state_of(path) for path, _, _ in self._files]

    def keep(self, signature: str, answers: Mapping[str, bytes]) -> None:
        """Write what a client with this signature is told; nothing, if there is no secret yet.

        Raises:
            OSError: it cannot be written.
        """
        secret = _secret()
        if secret is None or len(self._files) > _MOST_FILES or self._entries.get(signature) == answers:
            return
        self._entries.pop(signature, None)
        self._entries[signature] = answers
        entries = dict(list(self._entries.items())[-_MOST_CLIENTS:])
        index, blobs, offset = [], [], 0
        for client, of_client in entries.items():
            for method, blob in of_client.items():
                index.append([client, method, offset, len(blob)])
                blobs.append(blob)
                offset += len(blob)
        head = {
            "format": _FORMAT,
            "version": VERSION,
            "files": self._files,
            "names": self._names,
            "variables": digest_of_variables(self._names, self._environ, secret),
            "entries": index,
        }
        _write(self.path, json.dumps(head).encode() + b"\n" + b"".join(blobs))


def name_of(arguments: Iterable[str]) -> str:
    """The name of the answers of a command line, as it is given here."""
    return digest_of(json.dumps([list(arguments), os.getcwd()]).encode())


def read(name: str) -> Entries | None:
    """The answers of this name, if everything is as it was."""
    data = _content_of(_path_of(name))
    if data is None:
        return None
    end = data.find(b"\n") + 1
    try:
        head = json.loads(data[:end])
        if head["format"] != _FORMAT or head["version"] != VERSION or not _is_as_before(head):
            return None
        entries: dict[str, dict[str, bytes]] = {}
        for client, method, offset, length in head["entries"]:
            blob = data[end + offset : end + offset + length]
            if len(blob) != length:
                return None
            entries.setdefault(client, {})[method] = blob
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return entries


def clear() -> int:
    """Remove all answers of all command lines; how many."""
    folder = _folder()
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".answers")]
    except OSError:
        return 0
    for name in names:
        os.unlink(os.path.join(folder, name))
    return len(names)


def _is_as_before(head: Mapping[str, Any]) -> bool:
    secret = _secret()
    if secret is None or digest_of_variables(head["names"], os.environ, secret) != head["variables"]:
        return False
    return all(state_of(path) == (path, size, time) for path, size, time in head["files"])


def digest_of_variables(names: Iterable[str], environ: Mapping[str, str], secret: bytes) -> str:
    """A digest of their values, and of all variables that are settings of ours."""
    ours = [name for name in environ if name.startswith(_OURS)]
    values = [(name, environ.get(name)) for name in sorted({*names, *ours, *_ALWAYS})]
    return digest_of(json.dumps(values).encode(), secret)


def digests_of_variables(names: Iterable[str], environ: Mapping[str, str], secret: bytes) -> dict[str, str]:
    """Digests of the variables that are set, by name."""
    ours = {name for name in environ if name.startswith(_OURS) and name != _OF_COMMANDS}
    set_ones = sorted({*names, *ours, *_ALWAYS} & environ.keys())
    return {name: digest_of(environ[name].encode(errors="surrogateescape"), secret) for name in set_ones}


def digest_of(data: bytes, key: bytes = b"") -> str:
    """A digest of 20 bytes, in hexadecimal digits; of secrets, with a key."""
    return blake2b(data, digest_size=20, key=key).hexdigest()


def made_secret(folder: str | None = None) -> bytes:
    """The secret of a folder, by default that of this user's catalogues. It is made if there is none yet, or a damaged
    one; the same for all who ask at once.

    Raises:
        OSError: it can neither be read nor made.
    """
    folder = _folder() if folder is None else folder
    path = os.path.join(folder, _SECRET)
    if (known := _content_of(path)) is not None:
        if len(known) == _SECRET_BYTES:
            return known
        os.unlink(path)
    make_private(folder)
    make_once(path, os.urandom(_SECRET_BYTES))
    if (made := _content_of(path)) is None:
        raise OSError(errno.EACCES, "it is not this user's alone", path)
    return made


def make_once(path: str, data: bytes) -> None:
    """Make a file of this user alone, unless there is one. It is linked into its place, so that nobody ever reads half
    of it.

    Raises:
        OSError: that is not possible.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _folder() -> str:
    return os.path.join(cache_folder(), "catalogues")


def _path_of(name: str) -> str:
    return os.path.join(_folder(), f"{name}.answers")


def _secret() -> bytes | None:
    """The secret of the folder of catalogues, which is made with the first of them."""
    secret = _content_of(os.path.join(_folder(), _SECRET))
    return secret if secret is not None and len(secret) == _SECRET_BYTES else None


def _content_of(path: str) -> bytes | None:
    """The content of a file that only this user can write."""
    try:
        return read_own(path, ANSWERS_SIZE_LIMIT)[0]
    except (OSError, ValueError):
        return None


def _write(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
