"""How long to wait before the next attempt at a failed child. Pure: the caller brings the randomness."""

from __future__ import annotations

FIRST_CEILING = 0.5
LAST_CEILING = 60.0
HEALTHY_AFTER = 30.0
"""Seconds of running after which the next failure counts as the first again."""


def delay_before_attempt(failures: int, random_fraction: float) -> float:
    """Seconds to wait after `failures` failures in a row: exponential, capped, with full jitter.

    `random_fraction` is in [0, 1). Full jitter spreads children that failed together, so that they don't all
    come back at the same moment (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """
    ceiling: float = min(LAST_CEILING, FIRST_CEILING * 2 ** min(failures - 1, 16))
    return ceiling * random_fraction
