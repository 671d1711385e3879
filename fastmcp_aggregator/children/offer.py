"""The offer of one child: its catalogue, whether that is listed, and how long it stays while the child is down.

What the child offered in an earlier run is listed before it is asked. What it lists again in another order is no other
offer. A child that fails stays in the lists for a grace; one that is back by then has never left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from fastmcp_aggregator.catalogue.persisted.document import KnownCatalogue
from fastmcp_aggregator.catalogue.persisted.store import NOTHING_KNOWN, CatalogueStore
from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.children.client_profile import ClientProfile
from fastmcp_aggregator.children.process.on_demand import starts_asleep
from fastmcp_aggregator.config import ServerConfig
from fastmcp_aggregator.settings.options import ChildOptions

OnLeft = Callable[[frozenset[Kind]], None]


class Offer:
    """`on_left` is told of the kinds that leave the lists."""

    def __init__(
        self,
        server: ServerConfig,
        options: ChildOptions,
        profile: ClientProfile,
        store: CatalogueStore | None,
        on_left: OnLeft,
    ) -> None:
        self._key = server.key
        self._profile = profile
        self._store = store
        self._on_left = on_left
        self._grace = options.settings.list_grace
        self._filter = options.catalogue_filter
        self._latest: Catalogue | None = None
        self._known = NOTHING_KNOWN if store is None else store.known(server, options)
        known = self._known.by_kind or {}
        self.shown = self._known.shown
        """The evidence of the server in earlier runs, besides its offer."""
        self.starts_asleep = starts_asleep(server, options, (each.catalogue for each in known.values()))
        """True if the child need not be started before it is called."""
        if options.settings.strict and not self.starts_asleep:
            known = {}
        self._earlier = dict(known)
        self._filtered: dict[str, Catalogue] = {}
        self._is_listed = bool(known)
        self._era: str | None = None
        self._leaving: asyncio.TimerHandle | None = None

    def stand(self, catalogue: Catalogue) -> None:
        """List this, and never start the child: what it offers depends on who asks."""
        self._latest, self._is_listed, self.starts_asleep = catalogue, True, True

    @property
    def catalogue(self) -> Catalogue | None:
        """The last good catalogue, kept while the child is down; until there is one, that of an earlier run for such
        clients.
        """
        return self._latest if self._latest is not None else self._of_earlier_run()

    @property
    def is_listed(self) -> bool:
        return self._is_listed and (self._latest is not None or self._of_earlier_run() is not None)

    @property
    def since(self) -> float | None:
        """When it was read, in seconds since 1970, if that was in an earlier run."""
        return self._known.since if self._latest is None and self._of_earlier_run() is not None else None

    @property
    def era(self) -> str | None:
        """The era in which the child was listed last, in this run or an earlier one; None: not yet."""
        if self._era is None and self._of_earlier_run() is not None:
            return self._earlier[self._profile.kind].era
        return self._era

    def kinds(self) -> frozenset[Kind]:
        catalogue = self.catalogue
        return frozenset(kind for kind in Kind if catalogue is not None and catalogue.of(kind))

    def is_changed_by(self, catalogue: Catalogue) -> bool:
        """True if clients would see another list with this."""
        return self.is_listed and bool(catalogue.in_order_of(self.catalogue).differences(self.catalogue))

    def served(self, catalogue: Catalogue) -> frozenset[Kind]:
        """The child is up, and offers this; the kinds of which clients may see another list now."""
        self.stay()
        was_listed, was_known = self.is_listed, self.catalogue is not None
        changed = self.read(catalogue)
        self._is_listed = True
        if not was_known:  # and as long any name of another might have been one of this child's
            return frozenset(Kind)
        return changed if was_listed else changed | self.kinds()

    def read(self, catalogue: Catalogue) -> frozenset[Kind]:
        """The lists were read; what differs from before."""
        before, latest = self.catalogue, catalogue.in_order_of(self.catalogue)
        # The same object for the same offer, so that what was made of it can be seen to go on being true.
        is_same = before is not None and replace(latest, version=before.version) == before
        self._latest = before if is_same else latest
        return latest.differences(before)

    def keep(self, client_kind: str, protocol_version: str, era: str) -> None:
        """Keep it for the next run, for such clients."""
        self._era = era
        if self._store is not None and self._known.fingerprint is not None and self._latest is not None:
            known = KnownCatalogue(replace(self._latest, version=0), protocol_version, era)  # type: ignore[arg-type]
            self._store.keep(self._key, self._known.fingerprint, client_kind, known)

    def keep_shown(self, shown: frozenset[str]) -> None:
        """Keep for the next run what else the server has shown."""
        if self._store is not None and self._known.fingerprint is not None:
            self._store.keep_shown(self._key, self._known.fingerprint, shown)

    def inherit(self, other: Offer) -> None:
        """Go on with what a predecessor has listed, until it is known what this one offers."""
        if self.catalogue is None and self._grace > 0 and other.is_listed:
            self._latest, self._is_listed = other.catalogue, True
            self.leave_soon()

    def leave_soon(self) -> None:
        """The child is down: it leaves the lists if it does not come back."""
        if self._grace == 0:
            self._leave()
        elif self._is_listed and self._leaving is None:
            self._leaving = asyncio.get_running_loop().call_later(self._grace, self._leave)

    def stay(self) -> None:
        """The child is back, or gone for good."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def leave(self) -> None:
        """Leave the lists now."""
        self.stay()
        if self._is_listed:
            self._leave()

    def _leave(self) -> None:
        self._leaving = None
        kinds, self._is_listed = self.kinds(), False
        self._on_left(kinds)

    def _of_earlier_run(self) -> Catalogue | None:
        if not self._earlier or self._profile.is_awaited:
            return None
        kind = self._profile.kind
        if kind in self._earlier and kind not in self._filtered:
            self._filtered[kind] = self._filter(self._key, self._earlier[kind].catalogue)
        return self._filtered.get(kind)
