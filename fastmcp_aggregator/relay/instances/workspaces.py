"""Workspaces of clients: the folder and roots of each, as far as servers are to have an instance for each workspace.

A client is asked for its roots when such a server is first used, and is in the same workspace until it says that they
have changed, or leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import partial

from fastmcp_aggregator.callers.caller import Caller
from fastmcp_aggregator.callers.client_roots import Roots, roots_are_current, roots_of
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import ChildServerError


@dataclass(frozen=True, slots=True)
class Workspace:
    """One working folder and set of roots, of those who have authenticated as the same, or of all who have not."""

    account: Hashable
    folder: str | None
    roots: Roots | None
    needs_legacy_era: bool
    """True if its clients can be asked more by a server that speaks their era."""


class Workspaces:
    """The workspace of each client for each child, once it is known.

    `on_left` is told that a client is no longer where it was, `on_joined` that one has come to a workspace.
    """

    def __init__(self, on_left: Callable[[], None], on_joined: Callable[[], None]) -> None:
        self._on_left = on_left
        self._on_joined = on_joined
        self._of: dict[tuple[Child, Hashable], Workspace] = {}
        """Workspaces by child and client session."""
        self._at: dict[tuple[str, Workspace], set[Hashable]] = {}
        """The client sessions in each workspace, by server key."""
        self._watched: set[Hashable] = set()
        """The sessions whose end is watched for."""

    async def of(self, child: Child, caller: Caller, *, needs_legacy_era: bool) -> Workspace | None:
        """Where the caller's client is; None: that is unknown, so it shares with none.

        Raises:
            ChildServerError: the child has been removed meanwhile.
            MCPError: the client has left.
        """
        key = child, caller.session
        if key in self._of:
            return self._of[key]
        roots, folder = await roots_of(caller), caller.working_folder
        if child.why_stopped:
            raise ChildServerError(child.key, "runtime", child.why_stopped)
        tells_with_each_call = caller.is_modern and "roots" in caller.capabilities
        if tells_with_each_call or (folder is None and not (roots and roots.addresses)):
            return None
        workspace = Workspace(caller.account, folder, roots, needs_legacy_era)
        if not roots_are_current(caller):
            return workspace  # for this request alone
        if key not in self._of:
            self._of[key] = workspace
            self._at.setdefault((child.key, workspace), set()).add(caller.session)
            self._watch(caller)
            self._on_joined()
        return self._of[key]

    def sessions_at(self, server_key: str, workspace: Workspace) -> Collection[Hashable]:
        """The client sessions that are there for a child."""
        return self._at.get((server_key, workspace), ())

    def leave(self, session: Hashable) -> None:
        """A client is no longer where it was."""
        left = [(key, workspace) for key, workspace in self._of.items() if key[1] is session]
        for (child, _), workspace in left:
            del self._of[child, session]
            sessions = self._at[child.key, workspace]
            sessions.discard(session)
            if not sessions:
                del self._at[child.key, workspace]
        self._on_left()

    def drop(self, child: Child) -> None:
        self._of = {key: workspace for key, workspace in self._of.items() if key[0] is not child}
        self._at = {key: sessions for key, sessions in self._at.items() if key[0] != child.key}

    def _watch(self, caller: Caller) -> None:
        session = caller.session
        if session not in self._watched:
            self._watched.add(session)
            caller.at_end_of_session(partial(self._is_leaving, session))

    def _is_leaving(self, session: Hashable) -> None:
        """Handle the end of a session when whatever else ends with it has ended."""
        asyncio.get_running_loop().call_soon(self._gone, session)

    def _gone(self, session: Hashable) -> None:
        self._watched.discard(session)
        self.leave(session)
