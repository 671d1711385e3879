"""The policy stack: the policies that the settings ask for around each call, in one order, and what they hold open.

Audit is outermost, so that it records what the others reject; metrics next, for the same reason; then limits, which
are cheap; then what looks into the arguments. With no policy at all, nothing is done for a call. Nothing is loaded that
is off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from mcp.shared.exceptions import MCPError

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.callers.call import Denied
from fastmcp_aggregator.concurrency.limiter import Holder, Usage
from fastmcp_aggregator.errors import ChildServerError
from fastmcp_aggregator.files.followed import RefusedFile
from fastmcp_aggregator.pipe.bucket import TokenBucket
from fastmcp_aggregator.policies.audit import NO_CREDENTIALS, audit_of
from fastmcp_aggregator.policies.limits import limits_from_settings
from fastmcp_aggregator.policies.policy import CallEnd, Outcome, Policy, Rejected
from fastmcp_aggregator.policies.recent import History, RecentCalls
from fastmcp_aggregator.protocol.json_rpc import SERVER_UNAVAILABLE, Result
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.status.path_counts import PathCounts
from fastmcp_aggregator.status.server_status import ServerStatus

if TYPE_CHECKING:
    from fastmcp_aggregator.access.keys_file import FollowedKeys
    from fastmcp_aggregator.callers.call import Call

logger = logging.getLogger(__name__)

_FAILURES_AT_ONCE, _FAILURES_PER_SECOND = 5, 0.1
"""Failed authentications that the log tells of; metrics and the audit log have the others."""


class PolicyStack:
    """Runs calls through policies, outermost first."""

    def __init__(self, policies: Sequence[Policy] = ()) -> None:
        self.policies = tuple(policies)
        self.recorders: tuple[Policy, ...] = ()
        """Told of every call, after all policies and its answer, and not asked before. No call fails by them."""
        self.on_rejected: Callable[[Holder], None] = lambda holder: None
        """Told whose call was rejected."""

    async def admit(self, call: Call) -> Admission:
        """Let a call pass, if every policy does; inside of the admission they are told how it ends.

        Raises:
            MCPError: a policy rejected it.
        """
        admission = Admission(call, self.recorders)
        if self.policies:
            with admission.recording_failure(self.on_rejected):
                for pending in self._admit(call, admission):
                    await pending
        return admission

    def is_ready_for(self, call: Call) -> bool:
        """True if every policy would decide at once, in `admit_now`."""
        return all(policy.is_ready_for(call) for policy in self.policies)

    def admit_now(self, call: Call, refusal: ChildServerError | None = None) -> Admission:
        """Let a call pass that every policy is ready for; what is refused then is told them.

        Raises:
            MCPError: a policy rejected it.
            ChildServerError: the refusal.
        """
        admission = Admission(call, self.recorders)
        if self.policies:
            with admission.recording_failure(self.on_rejected):
                for _ in self._admit(call, admission):
                    raise AssertionError("a policy that was ready has to wait")
        if refusal is not None:
            admission.failed(refusal)
            raise refusal
        return admission

    def _admit(self, call: Call, admission: Admission) -> Iterator[Awaitable[None]]:
        for policy in self.policies:
            pending = policy.before(call)
            if pending is not None:
                yield pending
            admission.passed.append(policy)


class Admission:
    """The policies that have let a call pass, to be told once how it ended; and then the recorders, by `record`.

    Inside of it the call is served.
    """

    __slots__ = ("_call", "_end", "passed", "recorders")

    def __init__(self, call: Call, recorders: Sequence[Policy]) -> None:
        self._call = call
        self.recorders = recorders
        self._end: CallEnd | None = None
        self.passed: list[Policy] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.failed(error)
            return
        try:
            self.ended(self._call.answer)
        finally:
            self.record()

    def ended(self, result: Result, whole: Result | None = None) -> None:
        """The call has a result; `whole` is the same as it came, where it is not what the client gets."""
        if self.passed or self.recorders:
            seconds = time.monotonic() - self._call.began
            outcome = outcome_of(self._call, result)
            self._end = CallEnd(outcome, seconds, result=result if whole is None else whole)
            if self.passed:
                self._notify(self._end)

    def failed(self, error: BaseException) -> None:
        """The call failed: record its error."""
        self._end = failure_of(self._call, error)
        try:
            self._notify(self._end)
        finally:
            self.record()

    def record(self) -> None:
        """Tell the recorders of a call that has ended; its answer does not wait for that."""
        end, self._end = self._end, None
        if end is not None:
            for recorder in reversed(self.recorders):
                try:
                    recorder.after(self._call, end)
                except Exception:
                    logger.exception("a call of %s was not recorded", self._call.method)

    @contextmanager
    def recording_failure(self, on_rejected: Callable[[Holder], None]) -> Iterator[None]:
        """Tell the policies of what is raised here. Raises MCPError: in place of a rejection."""
        try:
            yield
        except Rejected as rejection:
            self.failed(rejection)
            on_rejected(self._call.caller.holder)
            raise as_error(rejection) from None
        except BaseException as error:
            self.failed(error)
            raise

    def _notify(self, end: CallEnd) -> None:
        """Innermost first, and all of them, whatever one of them raises."""
        failure: Exception | None = None
        for policy in reversed(self.passed):
            try:
                policy.after(self._call, end)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure


class RejectedCall(MCPError):
    """A policy's error, and not the child's."""


def as_error(rejection: Rejected) -> RejectedCall:
    """Turn a rejection into a JSON-RPC error; `data.retryIn` is in seconds."""
    data = rejection.data
    if rejection.retry_in is not None:
        data = {**(data or {}), "retryIn": round(rejection.retry_in, 3)}
    return RejectedCall(rejection.code, rejection.message, data)


def outcome_of(call: Call, result: Result) -> Outcome:
    """The outcome of a call. Of a request for the state of a task, that of the task, as far as it has one."""
    if call.task is not None and "status" in result:
        inner = result.get("result")
        has_failed = isinstance(inner, dict) and inner.get("isError")
        return "tool_error" if has_failed else _named(_OF_TASK, result["status"], "task")
    if result.get("isError"):
        return "tool_error"
    return _named(_OF_TYPE, result.get("resultType"), "ok")


def _named(outcomes: Mapping[str, Outcome], name: Any, other: Outcome) -> Outcome:
    """The outcome of this name, which a server may have made anything."""
    return outcomes.get(name, other) if isinstance(name, str) else other


_OF_TYPE: Mapping[str, Outcome] = {"input_required": "input_required", "task": "task"}
_OF_TASK: Mapping[str, Outcome] = {"completed": "ok", "failed": "error", "cancelled": "cancelled"}


def failure_of(call: Call, error: BaseException) -> CallEnd:
    seconds = time.monotonic() - call.began
    match error:
        case Rejected():
            return CallEnd("denied", seconds, error.code, error.message)
        case Denied():
            return CallEnd("denied", seconds, error.code, error.reason)
        case MCPError():
            return CallEnd("error", seconds, error.error.code)
        case ChildServerError():
            return CallEnd("error", seconds, SERVER_UNAVAILABLE)
        case asyncio.CancelledError():
            return CallEnd("cancelled", seconds)
        case _:
            return CallEnd("error", seconds)


async def _repeat(record: Callable[[], None], interval: float) -> None:
    while True:
        await asyncio.sleep(interval)
        record()


class Policies:
    """All policies of one aggregator, for all its virtual servers."""

    def __init__(self, settings: AggregatorSettings, *, has_auth: bool, counts_interval: float = 60.0) -> None:
        """`counts_interval` is the seconds after which the audit log has what a flood has left uncounted."""
        self._settings = settings
        self._counts_interval = counts_interval
        self._audit = audit_of(settings)
        self._limits = limits_from_settings(settings, has_auth=has_auth)
        self._metrics: Any = None
        self._recent: RecentCalls | None = None
        self.history = History()
        """The last hour, while calls are recorded."""
        self._told_failures = TokenBucket(burst=_FAILURES_AT_ONCE, rate=_FAILURES_PER_SECOND)
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
            self.stack.recorders = (self._recent, self.history)
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
                stack.callback(self._audit.record_counts)
                counting = asyncio.create_task(
                    _repeat(self._audit.record_counts, self._counts_interval), name="audit counts"
                )
                stack.callback(counting.cancel)
            if self._settings.telemetry:
                from fastmcp_aggregator.observability.telemetry import exporting_traces  # noqa: PLC0415 - as above

                stack.enter_context(exporting_traces(self._settings.name))
            try:
                yield
            finally:
                if self._limits is not None:
                    await self._limits.close()

    async def rendered_metrics(
        self,
        statuses: Mapping[str, ServerStatus],
        http_requests: tuple[int, int],
        paths: PathCounts,
        shares: Mapping[str, Usage],
        files: Mapping[str, RefusedFile | None],
        keys: FollowedKeys | None,
    ) -> tuple[bytes, str] | None:
        """The metrics as text, and its content type; None: they are off. `http_requests` run, and wait."""
        if self._metrics is None:
            return None
        from fastmcp_aggregator.policies.metrics import CONTENT_TYPE, Scrape  # noqa: PLC0415 - as above

        lost, is_failing = (self._audit.log.lost, self._audit.log.is_failing) if self._audit is not None else (0, False)
        refused = {what: file.since if file is not None else 0.0 for what, file in files.items()}
        expiries = keys.next_expiries() if keys is not None else {}
        found = Scrape(statuses, http_requests, shares, lost, is_failing, paths, refused, expiries)
        return await self._metrics.render(found), CONTENT_TYPE

    async def limit(self, principal: Principal, group: str) -> Rejected | None:
        """Count an HTTP request of a caller that is no call, but costs as much; why it is rejected, if it is."""
        if self._limits is not None:
            try:
                await self._limits.take(principal.name, group)
            except Rejected as rejection:
                return rejection
        return None

    def denied(self, principal: Principal, group: str, method: str, name: str, request_id: str, reason: str) -> None:
        """Record that somebody has asked for what is not theirs, by way of something else."""
        if self._audit is not None:
            self._audit.denied(principal, group, method, name, request_id, reason)

    @property
    def must_reject(self) -> bool:
        """True if calls are rejected, as they could not be recorded."""
        return self._audit is not None and self._audit.log.must_reject

    def request_denied(self, principal: Principal, group: str, path: str, reason: str) -> None:
        """An HTTP request of an authenticated caller was refused."""
        if self._audit is not None:
            self._audit.request_denied(principal, group, path, reason)

    def operated(self, principal: Principal, operation: str, server: str | None, **about: Any) -> None:
        """An operator has done something."""
        if self._audit is not None:
            self._audit.operated(principal, operation, server, about)

    def gave_way(self, server: str, principal: Principal, taker: Principal) -> None:
        """Somebody's instance of a server was closed because somebody with fewer needed one."""
        if self._audit is not None:
            self._audit.gave_way(server, principal, taker)
        logger.info("an instance of server %r of %s was closed: %s needed one", server, principal.name, taker.name)

    def question_refused(self, server: str, method: str) -> None:
        """A server has asked something, and it could not be told whom."""
        if self._audit is not None:
            self._audit.question_refused(server, method)

    def address_denied(self, client: str, path: str, reason: str) -> None:
        """An HTTP request was for another host, or of a page that is not let in."""
        if self._audit is not None:
            self._audit.address_denied(client, path, reason)
        self._tell("a request was refused", client, path, reason)

    def authentication_failed(self, client: str, path: str, reason: str) -> None:
        """An HTTP request had no valid credentials."""
        if self._audit is not None:
            self._audit.authentication_failed(client, path, reason)
        if self._metrics is not None:
            self._metrics.authentication_failed()
        if reason != NO_CREDENTIALS:
            self._tell("authentication failed", client, path, reason)

    def _tell(self, what: str, client: str, path: str, reason: str) -> None:
        """Log what was refused, but not all of a flood."""
        if self._told_failures.take(time.monotonic()):
            more, self._told_failures.rejected = self._told_failures.rejected, 0
            others = f" (and {more} more that were not logged)" if more else ""
            logger.warning("%s for %s at %s: %s%s", what, client or "a client", path, reason, others)
