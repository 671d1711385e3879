"""The servers of a hub at which people log in: with accounts of their own, or for the hub."""

from __future__ import annotations

from collections.abc import Mapping

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.children.http.credentials import shown_url
from fastmcp_aggregator.config import RemoteServer
from fastmcp_aggregator.oauth.logins import Site
from fastmcp_aggregator.relay.instances.caller_catalogues import site_of
from fastmcp_aggregator.web.dashboard.routes import Hub


class AccountSites:
    """Those of one hub, as it is configured now, by server key."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def of_callers(self) -> Mapping[str, Site]:
        """Where calls are made with callers' own accounts."""
        found = {key: site_of(child) for key, child in self._hub.children.items()}
        return {key: site for key, site in found.items() if site is not None}

    def of(self, principal: Principal) -> Mapping[str, Site]:
        """Those at which this caller may log in: those of its groups."""
        mine = {key for group in self._hub.groups() if principal.may_use(group.id) for key in group.servers}
        return {
            key: site for key, site in self.of_callers().items() if key in mine and site.settings.account == "caller"
        }

    def of_hub(self) -> Mapping[str, Site]:
        """Where the hub has an account that a person logs in to."""
        found = {}
        for key, child in self._hub.children.items():
            oauth, server = child.options.endpoint.access.oauth, child.server
            is_by_person = oauth is not None and oauth.grant == "authorization_code" and not child.stands_for_instances
            if oauth is not None and is_by_person and isinstance(server, RemoteServer):
                found[key] = Site(key, shown_url(server.url), oauth)
        return found
