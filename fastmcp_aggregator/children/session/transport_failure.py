"""Transport failures: why a request to a child has no answer, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcp.shared.exceptions import MCPError

HttpFailureKind = Literal["auth", "login", "status", "busy", "unreachable", "broken", "expired", "unacceptable"]


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """Why a request has no answer. `reason` is for the user.

    | kind | |
    |---|---|
    | auth | the credentials were refused |
    | login | a person has to log in first; nothing was executed |
    | status | any other status that is a failure |
    | busy | 429: too many requests |
    | unreachable | nothing was sent, as there is no connection |
    | broken | the connection ended before the answer was complete |
    | expired | the server has forgotten the session, and did not execute the request |
    | unacceptable | the answer was refused here: too large, or compressed |

    `pause` is how many seconds the server is to be left alone.
    """

    kind: HttpFailureKind
    reason: str
    pause: float = 0.0

    @property
    def is_answer(self) -> bool:
        """True if the server is well, however little the caller has of its answer."""
        return self.kind in ("expired", "login", "unacceptable")


class HttpFailed(Exception):
    """Carries a failure to the place where it is told."""

    def __init__(self, failure: HttpFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class RemoteFailure(MCPError):
    """A request that has no answer from the child, and why."""

    def __init__(self, code: int, failure: HttpFailure) -> None:
        super().__init__(code, failure.reason)
        self.failure = failure
