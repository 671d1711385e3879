"""A route: where one component is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from fastmcp_aggregator.catalogue.snapshot import SPECS, Component, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.routing.addresses import Publish


@dataclass(frozen=True, slots=True)
class Route:
    """One component: its child, its original name, and its listed definition, but for its public name."""

    child: Child
    original: str
    component: Component
    renamed: str | None = None
    """Our name for it, before any prefix."""
    publish: Publish = field(default=None, compare=False)
    """Publishes the child's addresses for clients; None where they stay as they are."""

    @property
    def name(self) -> str:
        """Its name, without a prefix."""
        return self.original if self.renamed is None else self.renamed


class Routes(Sequence[Route]):
    """The routes of a child's components of one kind, none of which is changed. Each is made when it is looked at: of
    100 000 resources few are.
    """

    def __init__(self, kind: Kind, components: Sequence[Component], make: Callable[[str, Component], Route]) -> None:
        self._id_field = SPECS[kind].id_field
        self._components = components
        self._make = make
        self._made: dict[int, Route] = {}

    def names(self) -> list[str]:
        """The names of routes, without a prefix."""
        id_field = self._id_field
        return [component[id_field] for component in self._components]

    def __len__(self) -> int:
        return len(self._components)

    @overload
    def __getitem__(self, index: int) -> Route: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Route]: ...
    def __getitem__(self, index: int | slice) -> Route | Sequence[Route]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        route = self._made.get(index)
        if route is None:
            component = self._components[index]
            route = self._made[index] = self._make(component[self._id_field], component)
        return route

    def __iter__(self) -> Iterator[Route]:
        return (self[index] for index in range(len(self)))
