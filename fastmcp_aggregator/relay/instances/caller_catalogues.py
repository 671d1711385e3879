"""Catalogues by principal, of servers that list to each caller what its own account sees.

Theory. The instance that a principal's calls are made with has listed what its account sees; here that is kept, for as
many principals as may have instances. Nothing is listed to anybody before it is known that their account can still be
used, and with which login it was listed: what was listed to one login is never listed after another, nor after the
end of it. A caller without an account is listed the way to one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence

from fastmcp_aggregator.callers.caller import PRESENT_CALLER, Caller
from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind, ids_of
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.children.http.credentials import shown_url
from fastmcp_aggregator.children.session.transport_failure import HttpFailed
from fastmcp_aggregator.config import RemoteServer
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.oauth.account import Account, ExchangeAccount
from fastmcp_aggregator.oauth.accounts import Accounts
from fastmcp_aggregator.oauth.logins import Site
from fastmcp_aggregator.relay.instances.instances import InstanceEvents, Instances, name_of

_NO_ACCOUNT = ("login", "auth")
"""Kinds of failures after which it is unknown whether a principal may see what it saw."""
_NOTHING: Mapping[str, Catalogue] = {}


def site_of(child: Child) -> Site | None:
    """The site of a child for logins; None: callers have no accounts there."""
    access = child.options.endpoint.access
    if access.oauth is None or not access.is_per_caller or not isinstance(child.server, RemoteServer):
        return None
    return Site(child.key, shown_url(child.server.url), access.oauth)


class CallerCatalogues:
    def __init__(self, accounts: Accounts, instances: Instances, events: InstanceEvents, *, limit: int) -> None:
        """`limit` is of principals."""
        self._accounts = accounts
        self._instances = instances
        self._limit = limit
        self._events = events
        self._of: OrderedDict[Hashable, dict[str, Catalogue]] = OrderedDict()
        self._names: dict[tuple[Hashable, str], Mapping[Kind, Collection[str]]] = {}
        self._logins: dict[tuple[Hashable, str], float] = {}
        """By principal and server key, when the person had logged in with whose account it was listed."""

    def caller(self) -> Hashable:
        caller = PRESENT_CALLER.get()
        return None if caller is None else caller.account

    def of(self, principal: Hashable) -> Mapping[str, Catalogue]:
        """The known catalogues of a principal, by server key."""
        return self._of.get(principal, _NOTHING)

    def has(self, instance: Child, kind: Kind, name: str) -> bool:
        """True if the instance of a principal lists this, by the server's own name."""
        key = name_of(instance), instance.key
        if key not in self._names:
            self.changed(instance)
        return name in self._names.get(key, {}).get(kind, ())

    async def known(self, children: Sequence[Child], timeout: float) -> None:
        caller = PRESENT_CALLER.get()
        if caller is None or not isinstance(caller.account, str):
            return
        await asyncio.gather(*(self._known(child, caller, caller.account, timeout) for child in children))

    def changed(self, instance: Child) -> None:
        """The instance of a principal has been listed anew."""
        principal, catalogue = name_of(instance), instance.catalogue
        if catalogue is None or not instance.is_listed:
            return
        found = self._of.setdefault(principal, {})
        self._of.move_to_end(principal)
        kinds = catalogue.differences(found.get(instance.key))
        found[instance.key] = catalogue
        self._names[principal, instance.key] = {kind: ids_of(kind, catalogue.of(kind)) for kind in Kind}
        site = site_of(instance)
        assert site is not None
        self._logins[principal, instance.key] = _login_of(self._account(site, str(principal)))
        self._events.listed_to(instance, principal, kinds)
        while len(self._of) > self._limit:
            oldest = next(iter(self._of))
            for key in list(self._of[oldest]):
                self._drop(oldest, key)

    def forget(self, child: Child, principal: Hashable) -> None:
        """A principal has no account there any more."""
        catalogue = self._of.get(principal, _NOTHING).get(child.key)
        if catalogue is not None:
            self._drop(principal, child.key)
            self._events.listed_to(child, principal, frozenset(Kind))

    async def _known(self, child: Child, caller: Caller, principal: str, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._until_listed(child, caller, principal)
        except TimeoutError:
            return  # what was listed last still is

    async def _until_listed(self, child: Child, caller: Caller, principal: str) -> None:
        site = site_of(child)
        assert site is not None
        account = self._account(site, principal)
        if isinstance(account, ExchangeAccount):
            if caller.bearer is None:
                self.forget(child, principal)
                return
            account.offer(caller.bearer)
        try:
            await account.authorization()
        except HttpFailed as error:
            if error.failure.kind in _NO_ACCOUNT:
                self._instances.renew(child, principal)
                self.forget(child, principal)
            return
        if self._logins.get((principal, child.key), _login_of(account)) != _login_of(account):
            self._instances.renew(child, principal)
            self.forget(child, principal)
        try:
            async with self._instances.serving(child, caller) as instance:
                await instance.until_settled()
        except ChildServerError:
            return  # there are too many instances

    def _account(self, site: Site, principal: str) -> Account:
        return self._accounts.account(site.url, site.settings, principal)

    def _drop(self, principal: Hashable, key: str) -> None:
        del self._of[principal][key]
        if not self._of[principal]:
            del self._of[principal]
        del self._names[principal, key], self._logins[principal, key]


def _login_of(account: Account) -> float:
    return 0.0 if account.tokens is None else account.tokens.logged_in_at
