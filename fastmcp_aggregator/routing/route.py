"""A route: where one component is."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastmcp_aggregator.catalogue.snapshot import Component
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.routing.addresses import Publish


@dataclass(frozen=True, slots=True)
class Route:
    """Where one component is: its child, what the child calls it, and how it is listed, but for its public name."""

    child: Child
    original: str
    component: Component
    renamed: str | None = None
    """What we call it instead, before any prefix."""
    publish: Publish = field(default=None, compare=False)
    """How the child's addresses are written for clients; None where they stay as they are."""

    @property
    def name(self) -> str:
        """What its public name is made of."""
        return self.original if self.renamed is None else self.renamed
