"""Values made in steps, between which other tasks run, and made once for all who ask meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

Making = dict[Hashable, Iterator[None]]
"""The steps under way, by key."""


def made_together(
    making: Making, made: Mapping[K, object], key: K, make: Callable[[], Iterator[None]]
) -> Iterator[None]:
    """Go on in steps until `made` has the key, with what others have begun, or by `make`.

    Raises:
        Exception: what `make` raises; who comes next begins anew.
    """
    while key not in made:
        steps = making.get((id(made), key))
        if steps is None:
            steps = making[id(made), key] = make()
        try:
            next(steps)
        except StopIteration:
            making.pop((id(made), key), None)
        except BaseException:
            making.pop((id(made), key), None)
            raise
        yield
