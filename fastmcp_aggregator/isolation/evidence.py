"""The evidence on one server: what it has shown while it ran, and the decision that follows from it now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from fastmcp_aggregator.config import ServerConfig
from fastmcp_aggregator.isolation.decision import Shown, decide
from fastmcp_aggregator.settings.options import ChildOptions

logger = logging.getLogger(__name__)


class Evidence:
    """The evidence of a child and all its instances together. What was seen once can come again, so it only grows; but
    a server that is up is no longer late.
    """

    def __init__(
        self,
        server: ServerConfig,
        options: ChildOptions,
        shown: Collection[str],
        keep: Callable[[frozenset[str]], None],
    ) -> None:
        """`shown` is what is known from earlier runs; names of another version are left out. `keep` keeps it."""
        self._server = server
        self._options = options
        self._keep = keep
        self.shown = frozenset(name for name in Shown if name in shown)
        self.decision = decide(server, options, self.shown)
        self.is_shared = self.decision.isolation == "shared"

    def show(self, what: Shown) -> None:
        """The server shows this. What follows from it counts from now on, and for later runs."""
        if what in self.shown:
            return
        self.shown |= {what}
        self._keep(self.shown)
        before, self.decision = self.decision, decide(self._server, self._options, self.shown)
        self.is_shared = self.decision.isolation == "shared"
        if self.decision != before:
            isolation, reason = self.decision.isolation, self.decision.reason
            logger.info("server %r: isolation %r from now on, because %s", self._server.key, isolation, reason)

    def is_up(self) -> None:
        """The server has been listed: lists wait for it again, should it not be known what it offers."""
        if Shown.LATE in self.shown:
            self.shown -= {Shown.LATE}
            self._keep(self.shown)
