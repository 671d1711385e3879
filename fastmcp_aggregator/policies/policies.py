"""The policies that the settings ask for, in their order, and what they hold open. Nothing is loaded that is off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.policies.audit import audit_of
from fastmcp_aggregator.policies.limits import limits_from_settings
from fastmcp_aggregator.policies.recent import RecentCalls
from fastmcp_aggregator.policies.stack import Policy, PolicyStack
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.status.server_status import ServerStatus


class Policies:
    """All policies of one aggregator, for all its virtual servers."""

    def __init__(self, settings: AggregatorSettings, *, has_auth: bool) -> None:
        self._settings = settings
        self._audit = audit_of(settings)
        self._limits = limits_from_settings(settings, has_auth=has_auth)
        self._metrics: Any = None
        self._recent: RecentCalls | None = None
        policies: list[Policy | None] = [self._audit]
        if settings.metrics:
            from fastmcp_aggregator.policies.metrics import Metrics  # noqa: PLC0415 - only if asked for

            self._metrics = Metrics()
            policies.append(self._metrics)
        policies.append(self._limits)
        if settings.validate_arguments:
            from fastmcp_aggregator.policies.validation import ArgumentValidation  # noqa: PLC0415 - as above

            policies.append(ArgumentValidation())
        self.stack = PolicyStack([policy for policy in policies if policy is not None])

    def record_calls(self) -> RecentCalls:
        """Keep the calls that end from now on, for people who look."""
        if self._recent is None:
            self._recent = RecentCalls()
            self.stack.policies = (self._recent, *self.stack.policies)
        return self._recent

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While calls may come.

        Raises:
            AggregatorError: the audit log cannot be opened, or traces cannot be exported.
        """
        with ExitStack() as stack:
            if self._audit is not None:
                stack.enter_context(self._audit.log)
            if self._settings.telemetry:
                from fastmcp_aggregator.observability.telemetry import exporting_traces  # noqa: PLC0415 - as above

                stack.enter_context(exporting_traces(self._settings.name))
            try:
                yield
            finally:
                if self._limits is not None:
                    await self._limits.close()

    async def rendered_metrics(
        self, statuses: Mapping[str, ServerStatus], http_requests: tuple[int, int]
    ) -> tuple[bytes, str] | None:
        """The metrics as text, and its content type; None: they are off. `http_requests` run, and wait."""
        if self._metrics is None:
            return None
        from fastmcp_aggregator.policies.metrics import CONTENT_TYPE, Scrape  # noqa: PLC0415 - as above

        lost = self._audit.log.lost if self._audit is not None else 0
        return await self._metrics.render(Scrape(statuses, http_requests, lost)), CONTENT_TYPE

    def denied(self, principal: Principal, group: str, method: str, name: str) -> None:
        """Somebody has asked for a name that is not in the group."""
        if self._audit is not None:
            self._audit.denied(principal, group, method, name, "there is nothing of this name in the group")

    def request_denied(self, principal: Principal, group: str, path: str, reason: str) -> None:
        """An HTTP request was refused to somebody who has authenticated."""
        if self._audit is not None:
            self._audit.request_denied(principal, group, path, reason)

    def authentication_failed(self, client: str, path: str, reason: str) -> None:
        """An HTTP request had no valid credentials."""
        if self._audit is not None:
            self._audit.authentication_failed(client, path, reason)
        if self._metrics is not None:
            self._metrics.authentication_failed()
