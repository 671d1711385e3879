"""The states of the server, one after the other."""

from __future__ import annotations

from fastmcp_aggregator.service.limits import STATES, State


class Lifecycle:
    """Which state the server is in."""

    def __init__(self) -> None:
        self.state: State = STATES[0]

    def advance(self, to: State) -> None:
        """Go on to the next state.

        Raises: RuntimeError, if another one comes next.
        """
        if STATES.index(to) != STATES.index(self.state) + 1:
            raise RuntimeError(f"the server is {self.state}, and cannot become {to}")
        self.state = to
