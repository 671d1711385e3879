"""Windows: the named pipe of a hub, the lock that it has as long as it lives, and the start of programs.

The lock is a file that one process can open for writing, and the hub is started with it as its stdin: it has the lock
until it ends, however it ends, so there is never a second one. The hub makes the pipe; handed over like the lock, it
lost messages under Wine. Only this user may open the pipe, and a client looks whose it is, for anybody may make one of
its name (as .NET does for `PipeOptions.CurrentUserOnly`). All this was tried under Wine, and on no Windows yet.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import _winapi
import ctypes
import errno
import msvcrt
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import wintypes
from threading import Thread
from typing import TYPE_CHECKING

from fastmcp_aggregator.attach.systems.pumps import CHUNK, POLLIN, POLLOUT, finish, of_client, of_hub, reading, writing
from fastmcp_aggregator.attach.systems.pumps import Poll as poll

if TYPE_CHECKING:  # a bridge does without
    from asyncio import AbstractEventLoop, Future

__all__ = ["POLLIN", "POLLOUT", "poll"]

ENDING_SIGNALS = ((signal.SIGTERM,),)
"""Signals that end a process that does not stop on request; here none can be ignored."""
_BUSY_WAIT = 20
"""Milliseconds in which a hub makes the next instance of its pipe."""
_RETRY_PAUSE = 0.1
_LAST_WRITES = 2.0
"""Seconds that clients have to read the rest when the hub has ended."""
_DETACHED = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_BREAKAWAY_FROM_JOB
_NO_DATA = 232
_FIRST_INSTANCE, _REJECT_REMOTE_CLIENTS = 0x80000, 8
_IDENTIFICATION = 0x110000
"""The hub may see who we are, and not act as we (SECURITY_SQOS_PRESENT | SECURITY_IDENTIFICATION)."""
_APPEND, _SYNCHRONIZE = 4, 0x100000
_SHARE_READ, _SHARE_ALL, _CREATE_ALWAYS, _OPEN_ALWAYS = 1, 7, 2, 4
_KERNEL_OBJECT, _OWNER, _TOKEN_USER, _TOKEN_QUERY = 6, 1, 1, 8

_kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
_advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
_kernel32.LocalFree.argtypes = [ctypes.c_void_p]
_kernel32.DisconnectNamedPipe.argtypes = [wintypes.HANDLE]


class _SecurityAttributes(ctypes.Structure):
    _fields_ = (("length", wintypes.DWORD), ("descriptor", ctypes.c_void_p), ("is_inherited", wintypes.BOOL))


class _Pipe:
    """One end of a connected pipe."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._reading: _winapi.Overlapped | None = None
        self._is_cancelled = False

    def read(self) -> bytes:
        overlapped, _ = _winapi.ReadFile(self._handle, CHUNK, overlapped=True)
        self._reading = overlapped
        if self._is_cancelled:
            overlapped.cancel()
        size, error = overlapped.GetOverlappedResult(True)
        if error == _winapi.ERROR_OPERATION_ABORTED:
            raise BrokenPipeError
        return bytes((overlapped.getbuffer() or b"")[:size])

    def write(self, message: bytes) -> None:
        overlapped, _ = _winapi.WriteFile(self._handle, message, overlapped=True)
        overlapped.GetOverlappedResult(True)

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._reading is not None:
            self._reading.cancel()

    def close(self) -> None:
        _winapi.CloseHandle(self._handle)


class Listener:
    """The pipe on which a hub listens: the next instance of it, and the connections to those before."""

    def __init__(self, path: str, instance: int, lock: str, locked: int) -> None:
        """`instance` is the handle of the first one, `locked` the descriptor of the lock."""
        self._path = path
        self._lock = lock
        self._locked = locked
        self.name = path.rpartition("\\")[2]
        self._instance = instance
        self._connecting: _winapi.Overlapped | None = None
        self._is_closed = False
        self._connected: deque[socket.socket] = deque()
        self._loop: AbstractEventLoop | None = None
        self._came: Future[None] | None = None
        self._accepting = Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @classmethod
    def inherited(cls, path: str, lock: str) -> Listener:
        """The handles that this process was started with. Its children inherit none of them.

        Raises:
            OSError: it was started otherwise.
        """
        locked = os.dup(0)
        if not os.path.samestat(os.stat(lock), os.fstat(locked)):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        instance = _instance(path, _FIRST_INSTANCE)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        return cls(path, instance, lock, locked)

    def connected(self) -> list[socket.socket]:
        peers = list(self._connected)  # to which a thread adds meanwhile
        for peer in peers:
            peer.setblocking(False)
        return peers

    async def accept(self, loop: AbstractEventLoop) -> socket.socket:
        self._loop = loop
        while not self._connected:
            self._came = loop.create_future()
            await self._came
        peer = self._connected.popleft()
        peer.setblocking(False)
        return peer

    def close(self, word: bytes) -> None:
        """Tell it all whose connections have not been accepted. Who comes from now on starts another hub, later."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        self._accepting.join()
        while self._connected:
            with self._connected.popleft() as peer, suppress(OSError):
                peer.setblocking(False)
                peer.sendall(word)

    def finish(self) -> None:
        """The hub has ended: pass on all that it has said, and take away what others would find of it."""
        finish(_LAST_WRITES)
        os.close(self._locked)
        with suppress(OSError):  # somebody else has it
            os.unlink(self._lock)

    def noted(self) -> bytes:
        return _content_of(self._lock)

    def note(self, note: bytes) -> None:
        """Note something longer than before."""
        _note(self._locked, note)

    def _accept(self) -> None:
        """Have clients connect, one after the other, in a thread."""
        while not self._is_closed:
            try:
                self._connecting = connecting = _winapi.ConnectNamedPipe(self._instance, overlapped=True)
                if self._is_closed:
                    connecting.cancel()
                _, error = connecting.GetOverlappedResult(True)
                if error:  # it is cancelled
                    break
                following = _instance(self._path)  # first, so that there always is one
                pipe, self._instance = self._instance, following
                self._connected.append(of_hub(_Pipe(pipe)))
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self._wake)
            except OSError as problem:
                if problem.winerror != _NO_DATA:  # else a client has come and left
                    time.sleep(_RETRY_PAUSE)
                _kernel32.DisconnectNamedPipe(self._instance)
        _winapi.CloseHandle(self._instance)

    def _wake(self) -> None:
        if self._came is not None and not self._came.done():
            self._came.set_result(None)


def connect(path: str) -> socket.socket | None:
    """A connection to a hub, which does not block; None: no hub listens now.

    Raises:
        OSError: the pipe is another user's, or cannot be used.
    """
    access = _winapi.GENERIC_READ | _winapi.GENERIC_WRITE
    flags = _winapi.FILE_FLAG_OVERLAPPED | _IDENTIFICATION
    try:
        _winapi.WaitNamedPipe(path, _BUSY_WAIT)
        handle = _winapi.CreateFile(path, access, 0, 0, _winapi.OPEN_EXISTING, flags, 0)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.winerror in (_winapi.ERROR_PIPE_BUSY, _winapi.ERROR_SEM_TIMEOUT):
            return None
        raise
    if _owner_of(handle) != _this_user():
        _winapi.CloseHandle(handle)
        raise PermissionError(errno.EACCES, "it is another user's")
    _winapi.SetNamedPipeHandleState(handle, _winapi.PIPE_READMODE_MESSAGE, None, None)
    peer = of_client(_Pipe(handle))
    peer.setblocking(False)
    return peer


def begin(path: str, lock: str, log: str, command: Sequence[str], note: Callable[[int], bytes]) -> bool:
    """Start a hub with this command, unless somebody has started it already; whether it was started.

    `note` makes what is noted of it of the process id.

    Raises:
        OSError: that is not possible.
    """
    try:
        locked = msvcrt.open_osfhandle(_opened(lock, _winapi.GENERIC_WRITE, _SHARE_READ, _CREATE_ALWAYS), 0)
    except PermissionError:
        return False
    try:
        output = open_log(log)
        try:
            _note(locked, note(_detached(command, locked, output)))
        finally:
            os.close(output)
    finally:
        os.close(locked)
    return True


def noted(path: str, lock: str) -> bytes | None:
    """The record of the hub that holds the lock; None: it is free."""
    try:
        handle = _opened(lock, _winapi.GENERIC_WRITE, _SHARE_ALL, _winapi.OPEN_EXISTING)
    except PermissionError:
        return _content_of(lock)
    except OSError:
        return None
    _winapi.CloseHandle(handle)
    return None


def own_server(command: Sequence[str]) -> tuple[socket.socket, socket.socket, Callable[[], int]]:
    """A program for one bridge alone: its stdout, its stdin, and what waits for its exit code.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as stdin, process.stdout as stdout:
        output, (input_, _) = reading(os.dup(stdout.fileno())), writing(os.dup(stdin.fileno()))
    for end in (output, input_):
        end.setblocking(False)
    return output, input_, process.wait


def open_log(path: str) -> int:
    """A descriptor that appends to a file, which may be renamed meanwhile."""
    return msvcrt.open_osfhandle(_opened(path, _APPEND | _SYNCHRONIZE, _SHARE_ALL, _OPEN_ALWAYS), os.O_APPEND)


def _detached(command: Sequence[str], stdin: int, output: int) -> int:
    """The id of a process with no console of ours, that outlives the job of the client."""
    try:
        process = subprocess.Popen(command, stdin=stdin, stdout=output, stderr=output, creationflags=_DETACHED)
    except PermissionError:
        raise PermissionError(errno.EPERM, "its client ends all that it has started with itself") from None
    process.returncode = 0  # it is not waited for
    return process.pid


def _instance(path: str, flags: int = 0) -> int:
    """A new instance of a pipe, for this user alone, of this machine alone."""
    descriptor = ctypes.c_void_p()
    user = _this_user()
    _require(
        _advapi32.ConvertStringSecurityDescriptorToSecurityDescriptorW(
            f"O:{user}D:P(A;;GA;;;{user})", 1, ctypes.byref(descriptor), None
        )
    )
    attributes = _SecurityAttributes(ctypes.sizeof(_SecurityAttributes), descriptor, False)
    mode = _winapi.PIPE_TYPE_MESSAGE | _winapi.PIPE_READMODE_MESSAGE | _winapi.PIPE_WAIT | _REJECT_REMOTE_CLIENTS
    access = _winapi.PIPE_ACCESS_DUPLEX | _winapi.FILE_FLAG_OVERLAPPED | flags
    size, most = CHUNK, _winapi.PIPE_UNLIMITED_INSTANCES
    try:
        return _winapi.CreateNamedPipe(path, access, mode, most, size, size, 0, ctypes.addressof(attributes))
    finally:
        _kernel32.LocalFree(descriptor)


def _this_user() -> str:
    """The security identifier (SID) of this process's user."""
    token, size = wintypes.HANDLE(), wintypes.DWORD()
    _require(
        _advapi32.OpenProcessToken(wintypes.HANDLE(_winapi.GetCurrentProcess()), _TOKEN_QUERY, ctypes.byref(token))
    )
    try:
        _advapi32.GetTokenInformation(token, _TOKEN_USER, None, 0, ctypes.byref(size))
        user = ctypes.create_string_buffer(size.value)
        _require(_advapi32.GetTokenInformation(token, _TOKEN_USER, user, size, ctypes.byref(size)))
    finally:
        _winapi.CloseHandle(token.value or 0)
    return _text_of(ctypes.c_void_p.from_buffer(user))


def _owner_of(handle: int) -> str:
    """The security identifier of a pipe's owner."""
    owner, descriptor = ctypes.c_void_p(), ctypes.c_void_p()
    failed = _advapi32.GetSecurityInfo(
        wintypes.HANDLE(handle),
        _KERNEL_OBJECT,
        _OWNER,
        ctypes.byref(owner),
        None,
        None,
        None,
        ctypes.byref(descriptor),
    )
    if failed:
        raise ctypes.WinError(failed)
    try:
        return _text_of(owner)
    finally:
        _kernel32.LocalFree(descriptor)


def _text_of(sid: ctypes.c_void_p) -> str:
    text = wintypes.LPWSTR()
    _require(_advapi32.ConvertSidToStringSidW(sid, ctypes.byref(text)))
    try:
        return text.value or ""
    finally:
        _kernel32.LocalFree(text)


def _require(is_done: int) -> None:
    if not is_done:
        raise ctypes.WinError(ctypes.get_last_error())


def _opened(path: str, access: int, share: int, disposition: int) -> int:
    """The handle of a file; PermissionError: somebody has it, and does not share it so."""
    return _winapi.CreateFile(path, access, share, 0, disposition, 0, 0)


def _content_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _note(locked: int, note: bytes) -> None:
    with suppress(OSError):
        os.lseek(locked, 0, os.SEEK_SET)
        os.write(locked, note)
