"""The route table: every name that is accepted → the child it belongs to and what that child calls it.

Theory. A table is immutable and made whole from the children's catalogues; a change in one of them makes the next
reader build a new one. It is built on demand, so a hundred children that arrive one after the other cost one
table. Names are looked up whole and never taken apart. A failed child keeps its routes, from its last good
catalogue, so that a call can say what is wrong; only its listings are gone, when it does not come back soon.

Where two components claim one spelling, the one that is listed under it has it: first come the names `key:name`,
then those that some client is shown under the present settings, then all other spellings; within each, config order.
A component whose public name belongs to another is not listed: a listed name always leads to what it was listed for.

Without prefixes, a child that has never been listed may have any name: those behind it have no bare names and addresses
meanwhile, so that none of them ever takes what belongs to it. What a child offers and is not taken up, such as a tool
that is not as pinned, keeps its name, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from msgspec import Raw

from fastmcp_aggregator.app_pages.page import PageNames, with_own_names
from fastmcp_aggregator.catalogue.snapshot import SPECS, CacheHint, Catalogue, Component, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import NameConflictError
from fastmcp_aggregator.groups.policy import ToolFilter
from fastmcp_aggregator.naming.rules import CLIENT_RULES, NameRule, SeparatorSetting, every_spelling, rule_for
from fastmcp_aggregator.naming.uris import fits, host_of, public_uri, split_public_uri
from fastmcp_aggregator.protocol import methods
from fastmcp_aggregator.protocol.json_rpc import Params
from fastmcp_aggregator.protocol.legacy import tools_for_legacy
from fastmcp_aggregator.protocol.raw_json import encode
from fastmcp_aggregator.routing.addresses import (
    Publish,
    publish_addresses,
    publish_prompt_result,
    publish_read_result,
    publish_tool_result,
)
from fastmcp_aggregator.routing.target import Target
from fastmcp_aggregator.settings.sections import ToolChanges

Spell = Callable[[str, str], Iterable[str]]


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

    def of_tool(self) -> Target:
        """The target of a tool's call."""
        address, schema = {"name": self.original}, self.component.get("inputSchema")
        return Target(self.child, address, self.publish, schema, publish_tool_result, addressed="content")

    def of_prompt(self) -> Target:
        """The target of a request for a prompt."""
        address = {"name": self.original}
        return Target(self.child, address, self.publish, None, publish_prompt_result, addressed="messages")

    def of_completion(self, ref: Params) -> Target:
        """The target of a completion for a prompt's argument."""
        return Target(self.child, {"ref": {**ref, "name": self.original}})


@dataclass(frozen=True, slots=True)
class Naming:
    """The two settings that decide names, and what follows from them."""

    separator: SeparatorSetting = "auto"
    prefix: bool = True

    def rule(self, client_name: str | None) -> NameRule:
        """How names are listed for a client."""
        return rule_for(client_name, separator=self.separator, prefix=self.prefix)

    def listed_rules(self) -> tuple[NameRule, ...]:
        """Every rule under which some client sees names."""
        known = (self.rule(client.name) for client in CLIENT_RULES)
        return tuple(dict.fromkeys((self.rule(None), *known)))


class RouteTable:
    """One generation of routes and of the listings that belong to it."""

    def __init__(
        self,
        children: Sequence[Child],
        names: Naming,
        tools: ToolFilter | None = None,
        changes: ToolChanges = MappingProxyType({}),
        withdrawn: Mapping[str, frozenset[str]] = MappingProxyType({}),
        catalogues: Mapping[str, Catalogue] = MappingProxyType({}),
    ) -> None:
        """`tools` tells which of the children's tools belong to it (None: all), `changes` how some are shown. Those
        that are `withdrawn`, by server key, are not there, and keep their names. `catalogues` are used instead of those
        of the children.
        """
        self._withdrawn = withdrawn
        self._catalogues = catalogues
        self._children = children
        self._names = names
        self._tools = tools
        self._changes = changes
        self._prefix = names.prefix
        self._by_key = {child.key: child for child in children}
        self._places = {child.key: place for place, child in enumerate(children)}
        self._routes: dict[Kind, dict[str, Route]] = {kind: {} for kind in Kind}
        self._listings: dict[tuple[Kind, NameRule], list[dict[str, Any]]] = {}
        self._texts: dict[tuple[Kind, NameRule, bool], Raw] = {}
        self._kept_back = self._find_kept_back()
        for kind in Kind:
            self._fill(kind)

    def find(self, kind: Kind, name: str) -> Route | None:
        """The route of a name in any accepted spelling."""
        return self._routes[kind].get(name)

    def has(self, kind: Kind, name: str) -> bool:
        """Whether a name, or an address, leads to a child."""
        return self.find(kind, name) is not None or (kind is Kind.RESOURCE and self.find_uri(name) is not None)

    def find_uri(self, uri: str) -> tuple[Child, str] | None:
        """The child that serves a public URI (or URI template), and what it calls it. It need not be listed, but if it
        is, as it was approved.
        """
        found = self._serving(uri)
        catalogue = None if found is None else self.catalogue_of(found[0])
        return None if found is not None and catalogue is not None and catalogue.withholds(found[1]) else found

    def catalogue_of(self, child: Child) -> Catalogue | None:
        """What is known of what a child offers here."""
        return self._catalogues.get(child.key, child.catalogue)

    def known_of(self, child: Child) -> Catalogue | None:
        """The same; None where all that is known is how to log in."""
        return self.catalogue_of(child)

    def _serving(self, uri: str) -> tuple[Child, str] | None:
        route = self._routes[Kind.RESOURCE].get(uri) or self._routes[Kind.TEMPLATE].get(uri)
        if route is not None:
            return route.child, route.original
        if self._prefix:
            parts = split_public_uri(uri)
            child = self._by_key.get(parts[0]) if parts else None
            return (child, parts[1]) if child and parts else None
        if len(self._children) == 1:
            return self._children[0], uri
        entitled = takewhile(lambda child: not self._may_have_more(child, Kind.TEMPLATE), self._children)
        return next(((child, uri) for child in entitled if self._has_template_for(child, uri)), None)

    def owner_of_tool(self, server_key: str, name: str) -> Child | None:
        """The child of a tool that belongs here, by their own names, whether or not it is listed now."""
        is_here = self._tools is None or self._tools.has(server_key, name)
        return self._by_key.get(server_key) if is_here else None

    def listing(self, kind: Kind, rule: NameRule) -> list[dict[str, Any]]:
        """All components of a kind under one client's names, as wire objects. Shared: not to be changed."""
        listing = self._listings.get((kind, rule))
        if listing is None:
            listing = self._listings[kind, rule] = list(self._list(kind, rule))
        return listing

    def listing_as_json(self, kind: Kind, rule: NameRule, *, is_modern: bool) -> Raw:
        """The same as JSON, for clients of one era.

        Raises:
            ValueError: it cannot be written as such.
        """
        text = self._texts.get((kind, rule, is_modern))
        if text is None:
            items = self.listing(kind, rule)
            if kind is Kind.TOOL and not is_modern:
                items = tools_for_legacy(items)
            text = self._texts[kind, rule, is_modern] = Raw(encode(items))
        return text

    def cache_hint(self, kind: Kind) -> CacheHint:
        """How long the list of a kind may be kept: as long as each child says of its own, and for the caller only
        where names depend on who asks.
        """
        found = [self.catalogue_of(child) for child in self._children if child.is_listed]
        serving = [catalogue for catalogue in found if catalogue is not None]
        hints = [catalogue.hints.get(kind, CacheHint()) for catalogue in serving if kind in catalogue.components]
        is_same_for_all = len(self._names.listed_rules()) == 1
        return CacheHint(
            min((hint.ttl_ms for hint in hints), default=0),
            bool(hints) and is_same_for_all and all(hint.is_public for hint in hints),
        )

    def names(self, kind: Kind, rule: NameRule) -> Iterator[str]:
        """The listed public names (or URIs) of a kind."""
        id_field = SPECS[kind].id_field
        return (component[id_field] for component in self.listing(kind, rule))

    def served(self, kind: Kind) -> Iterator[Route]:
        """What is listed, in order."""
        for child in self._children:
            if child.is_listed:
                yield from self._offered(child, kind)

    def owners(self, kind: Kind, name: str) -> list[str]:
        """The servers that offer something by its own name, as they were last listed, be it taken up or not."""
        return [
            child.key
            for child in self._children
            if any(r.name == name for r in self._offered(child, kind)) or name in self._left_out(child, kind)
        ]

    def unlisted(self, kind: Kind) -> list[str]:
        """The servers of which it is not known what they offer of a kind."""
        return [child.key for child in self._children if self._may_have_more(child, kind)]

    def named(self, kind: Kind, rule: NameRule) -> Iterator[tuple[str, Route]]:
        """What is listed for a client, in order: the public name or URI, and the route that it leads to."""
        return self._named_in(self.served(kind), kind, rule)

    def of_page(self, child: Child, original: str, rule: NameRule) -> Target:
        """The target of a request for the page of an app, which may use its server's own names."""
        names = PageNames(
            child.key,
            host_of(child.key) if self._prefix else None,
            tools=self._names_of(child, Kind.TOOL, rule),
            prompts=self._names_of(child, Kind.PROMPT, rule),
        )
        target = self.of_resource(child, original)
        return replace(
            target, publish_result=lambda result, publish: with_own_names(publish_read_result(result, publish), names)
        )

    def of_resource(self, child: Child, original: str) -> Target:
        """The target of a request for a resource."""
        publish, address = self.publisher(child), {"uri": original}
        return Target(child, address, publish, None, publish_read_result, is_resource=True, addressed="contents")

    def of_template_completion(self, child: Child, original: str, ref: Params) -> Target:
        """The target of a completion for a template's variable."""
        return Target(child, {"ref": {**ref, "uri": original}}, self.publisher(child), is_resource=True)

    def target(self, method: str, params: Params) -> Target | None:
        """The target of a call whose component is known; None for all else."""
        if method == methods.TOOLS_CALL.name:
            route = self._named(Kind.TOOL, params.get("name"))
            return route.of_tool() if route else None
        if method == methods.PROMPTS_GET.name:
            route = self._named(Kind.PROMPT, params.get("name"))
            return route.of_prompt() if route else None
        if method == methods.RESOURCES_READ.name:
            found = self._addressed(params.get("uri"))
            return self.of_resource(*found) if found else None
        ref = params.get("ref")
        return self._completed(ref) if method == methods.COMPLETE.name and isinstance(ref, dict) else None

    def _completed(self, ref: Params) -> Target | None:
        if ref.get("type") == "ref/resource":
            found = self._addressed(ref.get("uri"))
            return self.of_template_completion(*found, ref) if found else None
        route = self._named(Kind.PROMPT, ref.get("name"))
        return route.of_completion(ref) if route else None

    def _named(self, kind: Kind, name: Any) -> Route | None:
        return self.find(kind, name) if isinstance(name, str) else None

    def _addressed(self, uri: Any) -> tuple[Child, str] | None:
        return self.find_uri(uri) if isinstance(uri, str) else None

    def conflicts(self, rule: NameRule) -> list[NameConflictError]:
        """Every public name under `rule` that two children offer."""
        found = []
        for kind in Kind:
            owners: dict[str, str] = {}
            for route in self.served(kind):
                public = self.public_id(kind, rule, route)
                owner = owners.setdefault(public, route.child.key)
                if owner != route.child.key:
                    found.append(NameConflictError(public, owner, route.child.key))
        return found

    def public_id(self, kind: Kind, rule: NameRule, route: Route) -> str:
        """The public name or URI of a component under one client's rule."""
        if kind in (Kind.TOOL, Kind.PROMPT):
            return rule.public_name(route.child.key, route.name)
        return public_uri(route.child.key, route.original) if self._prefix else route.original

    def _names_of(self, child: Child, kind: Kind, rule: NameRule) -> dict[str, str]:
        """The public name of each component of a child that is listed, by its own name."""
        return {route.original: public for public, route in self._named_in(self._offered(child, kind), kind, rule)}

    def _named_in(self, routes: Iterable[Route], kind: Kind, rule: NameRule) -> Iterator[tuple[str, Route]]:
        for route in routes:
            public = self.public_id(kind, rule, route)
            owner = self.find(kind, public)
            if owner is not None and (owner.child, owner.original) == (route.child, route.original):
                yield public, route

    def _list(self, kind: Kind, rule: NameRule) -> Iterator[dict[str, Any]]:
        yield from self._shown(self.served(kind), kind, rule)

    def _shown(self, routes: Iterable[Route], kind: Kind, rule: NameRule) -> Iterator[dict[str, Any]]:
        for public, route in self._named_in(routes, kind, rule):
            component = {**route.component, SPECS[kind].id_field: public}
            yield publish_addresses(component, self.publisher(route.child))

    def publisher(self, child: Child) -> Publish:
        """How this child's addresses are written for clients; None where they stay as they are."""
        return partial(public_uri, child.key) if self._prefix else None

    def _fill(self, kind: Kind) -> None:
        table = self._routes[kind]
        routes = [route for child in self._children for route in self._offered(child, kind)]
        for spell in self._spellings(kind):
            for route in routes:
                for name in self._entitled(kind, route, spell):
                    table.setdefault(name, route)

    def _entitled(self, kind: Kind, route: Route, spell: Spell) -> Iterable[str]:
        if self._prefix or not self._is_kept_back(kind, route):
            return spell(route.child.key, route.name)
        return every_spelling(route.child.key, route.name) if kind in (Kind.TOOL, Kind.PROMPT) else ()

    def _is_kept_back(self, kind: Kind, route: Route) -> bool:
        """Whether a name without a prefix may belong to a child before this one."""
        place = self._places[route.child.key]
        return self._kept_back.get((kind, ""), place) < place or self._kept_back.get((kind, route.name), place) < place

    def _find_kept_back(self) -> dict[tuple[Kind, str], int]:
        """By name, the place of the first child that may have it and does not show it; "" stands for any name."""
        found: dict[tuple[Kind, str], int] = {}
        for place, child in enumerate(() if self._prefix else self._children):
            for kind in Kind:
                names = {""} if self._may_have_more(child, kind) else self._left_out(child, kind)
                for name in names:
                    found.setdefault((kind, name), place)
        return found

    def _left_out(self, child: Child, kind: Kind) -> frozenset[str]:
        """The names of what a child offers, and would be here if it had been taken up."""
        catalogue = self.catalogue_of(child)
        left_out = (catalogue.left_out.get(kind) if catalogue is not None else None) or frozenset()
        if kind is not Kind.TOOL:
            return left_out
        left_out |= self._withdrawn.get(child.key, frozenset())
        hidden = self._changes.get(child.key, {}).keys()
        in_group = (name for name in left_out if self._tools is None or self._tools.has(child.key, name))
        return frozenset(name for name in in_group if name not in hidden)

    def _offered(self, child: Child, kind: Kind) -> Iterator[Route]:
        id_field = SPECS[kind].id_field
        changes = self._changes.get(child.key, {}) if kind is Kind.TOOL else {}
        publish = self.publisher(child)
        withdrawn = self._withdrawn.get(child.key, ()) if kind is Kind.TOOL else ()
        for component in offered(self.catalogue_of(child), kind):
            original = component[id_field]
            if original in withdrawn:
                continue
            if kind is Kind.TOOL and self._tools is not None and not self._tools.has(child.key, original):
                continue
            change = changes.get(original)
            if change is None:
                yield Route(child, original, component, publish=publish)
            elif not change.hidden:
                yield Route(child, original, change.applied(component), change.name, publish)

    def _has_template_for(self, child: Child, uri: str) -> bool:
        return any(fits(template["uriTemplate"], uri) for template in offered(self.catalogue_of(child), Kind.TEMPLATE))

    def _may_have_more(self, child: Child, kind: Kind) -> bool:
        """Whether nobody knows what a child offers of a kind: it has never been listed, or not of this kind."""
        catalogue = self.catalogue_of(child)
        return catalogue is None or catalogue.left_out.get(kind, frozenset()) is None

    def _spellings(self, kind: Kind) -> Sequence[Spell]:
        """Ways to spell a component, in the order in which they are entitled to a name."""
        if kind not in (Kind.TOOL, Kind.PROMPT):
            exact: Spell = lambda key, uri: (public_uri(key, uri) if self._prefix else uri,)  # noqa: E731
            return [exact, lambda key, uri: map(_as_pydantic_writes, exact(key, uri))]
        listed = self._names.listed_rules()
        return [
            lambda key, name: (f"{key}:{name}" if self._prefix else name,),
            lambda key, name: (rule.public_name(key, name) for rule in listed),
            lambda key, name: every_spelling(key, name, prefix=self._prefix),
        ]


def _as_pydantic_writes(uri: str) -> str:
    """`file://key//path` becomes `file://key/path` in FastMCP's models, and so it comes back from their readers."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}://{rest.replace('//', '/', 1)}" if separator and scheme.lower() == "file" else uri


def offered(catalogue: Catalogue | None, kind: Kind) -> Sequence[Component]:
    """What is listed of a kind."""
    return catalogue.of(kind) if catalogue is not None else ()
