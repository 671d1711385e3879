"""Exceptions: every error that the package raises, in one tree.

    AggregatorError
    ├── ConfigError          the config file (or settings) is missing, unreadable or wrong
    ├── ChildServerError     one child failed: which one, in which phase, and why
    ├── DependencyError      a library is missing, or its version cannot be used
    ├── NameConflictError    without prefixes, two children offer the same name
    ├── SharedStateError     at the start, what replicas share cannot be reached
    └── StartupError         a strict start ended because children failed; lists all of them

What crosses the wire to a client is made from these in `front/wire/errors.py`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

ConfigErrorCode = Literal["file_not_found", "invalid_json", "invalid_schema", "missing_env_var", "too_few_descriptors"]
"""The gravest first."""
Phase = Literal["startup", "initialization", "runtime"]
_MOST_DETAILS = 100


class AggregatorError(Exception):
    """Base of all errors of this package."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is wrong with the config.

    `path` is where, as a JSON path (`$.mcpServers.files.command`); `message` says what is wrong and what to
    write instead, and never contains a configured value that may be secret.
    """

    code: ConfigErrorCode
    path: str
    message: str

    def __str__(self) -> str:
        has_no_location = self.code == "file_not_found" and self.path == "$"
        return self.message if has_no_location else f"{self.path}: {self.message}"


class ConfigError(AggregatorError):
    """The config cannot be used; `details` lists every problem found, not just the first; the message has 100 at most.

    `code` is the kind of the gravest problem: a file that cannot be read before a wrong shape, and a wrong
    shape before a missing variable.
    """

    def __init__(self, source: str, details: Sequence[ConfigProblem]) -> None:
        self.source = source
        self.details = tuple(details)
        self.code: ConfigErrorCode = min((d.code for d in details), key=get_args(ConfigErrorCode).index)
        count = "1 problem" if len(self.details) == 1 else f"{len(self.details)} problems"
        more = len(self.details) - _MOST_DETAILS
        last = [f"  and {more} more"] if more > 0 else []
        super().__init__("\n".join([f"{source}: {count}", *(f"  {d}" for d in self.details[:_MOST_DETAILS]), *last]))

    def and_also(self, other: ConfigError) -> ConfigError:
        """Return one error with the problems of two files."""
        both = [replace(problem, path=f"{e.source} {problem.path}") for e in (self, other) for problem in e.details]
        return ConfigError(f"{self.source} and {other.source}", both)


class ChildServerError(AggregatorError):
    """A child could not be started, did not initialise, stopped while it was in use, or does not answer.

    `reason` is one sentence for the user; `public_reason` is for those who are not on this machine, without the
    commands, files, variables and addresses that `reason` may name. `retry_in` is the number of seconds until the
    next retry, where that is known; `pause` the minimum of seconds before one, even on demand (`Retry-After`), infinity
    for never. `auth_error` says that it refused its credentials, and `login_needed` that a person has to log in.
    `stderr_tail` holds the last lines it wrote to stderr, oldest first; the message has them too.
    """

    def __init__(
        self,
        server_key: str,
        phase: Phase,
        reason: str,
        *,
        cause: BaseException | None = None,
        stderr_tail: Sequence[str] = (),
        retry_in: float | None = None,
        pause: float = 0.0,
        auth_error: bool = False,
        login_needed: bool = False,
        public_reason: str | None = None,
    ) -> None:
        self.server_key = server_key
        self.phase: Phase = phase
        self.reason = reason
        self.cause = cause
        self.retry_in = retry_in
        self.pause = pause
        self.auth_error = auth_error
        self.login_needed = login_needed
        self.public_reason = reason if public_reason is None else public_reason
        self.stderr_tail = tuple(stderr_tail)
        lines = [f"server {server_key!r} failed during {phase}: {reason}"]
        if self.stderr_tail:
            lines += ["its last lines on stderr:", *(f"  {line}" for line in self.stderr_tail)]
        super().__init__("\n".join(lines))

    def for_log(self) -> ChildServerError:
        """Return the error without the last lines on stderr, which are in the log already."""
        return ChildServerError(self.server_key, self.phase, self.reason)

    def for_others(self) -> ChildServerError:
        """Return the error for callers that are not on this machine: with `public_reason`, without stderr."""
        return ChildServerError(
            self.server_key, self.phase, self.public_reason, retry_in=self.retry_in, login_needed=self.login_needed
        )


class DependencyError(AggregatorError, ImportError):
    """A library that this package stands on, such as FastMCP, is missing, or its version cannot be used."""


class NameConflictError(AggregatorError):
    """Two children offer a component of the same public name.

    Only possible without prefixes, or with a separator that both server keys contain.
    """

    def __init__(self, public_name: str, first_key: str, second_key: str) -> None:
        self.public_name = public_name
        self.server_keys = (first_key, second_key)
        super().__init__(
            f"servers {first_key!r} and {second_key!r} both offer {public_name!r}; "
            "remove one of them or serve names with prefixes"
        )


class SharedStateError(AggregatorError):
    """The state that replicas share (`redis_url`) is out of reach at the start, so the hub does not start."""


class StartupError(AggregatorError):
    """A strict start ended because at least one child failed; `failures` has them all, in config order.

    `summary` is the message without its advice on how to serve the others.
    """

    def __init__(self, failures: Sequence[ChildServerError | NameConflictError]) -> None:
        self.failures = tuple(failures)
        count = "1 failure" if len(self.failures) == 1 else f"{len(self.failures)} failures"
        self.summary = "\n".join([f"start ended with {count}:", *(str(failure) for failure in self.failures)])
        super().__init__(
            f"{self.summary}\nTo serve without the failed servers, start with --no-strict (strict=False in Python)."
        )
