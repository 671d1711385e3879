"""The client on a pipe of its own: what its front knows of it beside what it says, and what is done when it leaves.

Over HTTP there is none: nothing tells in which folder such a client works, nor when a modern one has left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from fastmcp_aggregator.children.session.in_flight import Attached


class PipeClient(Attached):
    """One client, from its first byte to its last, whichever era it speaks."""

    def __init__(self, working_folder: str | None = None, *, is_one_of_many: bool = False) -> None:
        """`working_folder` is the absolute path of the folder in which its program runs; None: unknown."""
        self.working_folder = working_folder
        self.holder: Hashable = self if is_one_of_many else None
        """The holder that its calls count for; None: it is the only client."""
        self._at_end = ExitStack()

    def at_end(self, action: Callable[[], None]) -> None:
        """Have something done when it leaves."""
        self._at_end.callback(action)

    def leave(self) -> None:
        """Run the callbacks of `at_end`, the last one first: the client is gone."""
        self.has_left = True
        self._at_end.close()


PIPE_CLIENT: ContextVar[PipeClient | None] = ContextVar("the client on this pipe", default=None)
"""The client of a pipe, in the context in which a front reads and serves its requests."""


@contextmanager
def pipe_client(working_folder: str | None, *, is_one_of_many: bool = False) -> Iterator[PipeClient]:
    """While one client is served on a pipe, by what is begun inside of this; it leaves at the end."""
    client = PipeClient(working_folder, is_one_of_many=is_one_of_many)
    before = PIPE_CLIENT.set(client)
    try:
        yield client
    finally:
        PIPE_CLIENT.reset(before)
        client.leave()
