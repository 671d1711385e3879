"""The route table: every name that is accepted → the child it belongs to and what that child calls it.

Theory. A table is immutable: a change in one of the children's catalogues makes the next reader build a new one. What
a child offers is its section of the table, made when it is looked at first and taken over by the next tables until it
is another, so what a change costs does not grow with other children. A name is looked for in the sections of the few
children whose keys it can begin with, in each of its possible spellings, and then known. A failed child keeps its
routes, from its last good catalogue, so that a call can say what is wrong; only its listings are gone, when it does not
come back soon.

Where two components claim one spelling, the one that is listed under it has it: first come the names `key:name`,
then those that some client is shown under the present settings, then all other spellings; within each, config order.
A component whose public name belongs to another is not listed: a listed name always leads to what it was listed for.
A spelling that no client is shown leads to no child if it begins with a longer key than that child's; and none leads
anywhere while a child that has never been listed may have it with as much right.

Without prefixes, a child that has never been listed may have any name: those behind it have no bare names and addresses
meanwhile, so that none of them ever takes what belongs to it. What a child offers and is not taken up, such as a tool
that is not as pinned, keeps its name, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, takewhile
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Raw

from fastmcp_aggregator.app_pages.page import SCHEME, PageNames, with_own_names
from fastmcp_aggregator.catalogue.snapshot import CacheHint, Catalogue, Component, Kind
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.errors import NameConflictError
from fastmcp_aggregator.groups.policy import ToolFilter
from fastmcp_aggregator.naming.rules import CLIENT_RULES, NameRule, SeparatorSetting, is_hashed, loose, rule_for
from fastmcp_aggregator.naming.uris import fits_any, host_of, public_uri, split_public_uri
from fastmcp_aggregator.protocol import methods
from fastmcp_aggregator.protocol.json_rpc import Params
from fastmcp_aggregator.routing.addresses import (
    Publish,
    publish_prompt_result,
    publish_read_result,
    publish_tool_result,
)
from fastmcp_aggregator.routing.route import Route, Routes
from fastmcp_aggregator.routing.section import NAMED, Section, text_of
from fastmcp_aggregator.routing.steps import Making, made_together
from fastmcp_aggregator.routing.target import Target
from fastmcp_aggregator.settings.sections import ToolChanges

T = TypeVar("T")
Claim = tuple[int, int, int]
"""The level of a claim to a name, and the indices of the child and of the component: the least has it."""
_UNDERSTOOD = 2
"""The level of a spelling that no client is shown."""
KEY_HEAD = 40
"""Characters of a key, as the strictest client writes it, that stand in front of each spelling with the key."""
_STEP = 100
"""Names that are looked up at once."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The two settings that decide names, and what follows from them."""

    separator: SeparatorSetting = "auto"
    prefix: bool = True

    def rule(self, client_name: str | None) -> NameRule:
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
        sections: dict[str, Section] | None = None,
        others: Collection[str] = (),
    ) -> None:
        """`tools` tells which of the children's tools belong to it (None: all), `changes` how some are shown. Those
        that are `withdrawn`, by server key, are not there, and keep their names. `catalogues` are used instead of those
        of the children. `sections` are those of the tables before it, of the same directory, and are kept up. `others`
        are the keys of servers, also those that are not here: what begins with one and a colon is nobody else's.
        """
        self._withdrawn = withdrawn
        self._catalogues = catalogues
        self._children = children
        self._names = names
        self._tools = tools
        self._changes = changes
        self._prefix = names.prefix
        self._by_key = {child.key: child for child in children}
        self._others = others
        self._indices = {child.key: index for index, child in enumerate(children)}
        self._listed_rules = names.listed_rules()
        self._latest = {} if sections is None else sections
        self._sections: dict[str, Section] = {}
        self._by_head: dict[str, list[Child]] = {}
        for child in children:
            self._by_head.setdefault(_head_of(child.key), []).append(child)
        self._heads = frozenset(map(_head_of, (*self._by_key, *others)))
        self._found: dict[Kind, dict[str, Route]] = {kind: {} for kind in Kind}
        self._targets: dict[str, Target] = {}
        """Targets of the tools that were called, by name."""
        self._listings: dict[tuple[Kind, NameRule], list[dict[str, Any]]] = {}
        self._texts: dict[tuple[Kind, NameRule, bool], Raw] = {}
        self._lost: dict[tuple[str, Kind, NameRule], set[int]] = {}
        self._making: Making = {}

    def find(self, kind: Kind, name: str) -> Route | None:
        """The route of a name in any accepted spelling."""
        route = self._found[kind].get(name)
        if route is None and (route := self._search(kind, name)) is not None:
            self._found[kind][name] = route
        return route

    def has(self, kind: Kind, name: str) -> bool:
        return self.find(kind, name) is not None or (kind is Kind.RESOURCE and self.find_uri(name) is not None)

    def find_uri(self, uri: str) -> tuple[Child, str] | None:
        """The child that serves a public URI (or URI template), and what it calls it. It need not be listed, but if it
        is, as it was approved.
        """
        found = self._serving(uri)
        catalogue = None if found is None else self.catalogue_of(found[0])
        return None if found is not None and catalogue is not None and catalogue.withholds(found[1]) else found

    def catalogue_of(self, child: Child) -> Catalogue | None:
        """The catalogue of a child, as far as it is known here."""
        return self._catalogues.get(child.key, child.catalogue)

    def known_of(self, child: Child) -> Catalogue | None:
        """The child's catalogue; None where only the login is known."""
        return self.catalogue_of(child)

    def _serving(self, uri: str) -> tuple[Child, str] | None:
        route = self.find(Kind.RESOURCE, uri) or self.find(Kind.TEMPLATE, uri)
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
            listing = self._listings[kind, rule] = list(chain.from_iterable(self.items_of_each(kind, rule)))
        return listing

    def listing_as_json(self, kind: Kind, rule: NameRule, *, is_modern: bool) -> Raw:
        """The same as JSON, for clients of one era. Raises ValueError: it cannot be written as such."""
        text = self._texts.get((kind, rule, is_modern))
        if text is None:
            parts = filter(None, self.texts_of_each(kind, rule, is_modern=is_modern))
            text = self._texts[kind, rule, is_modern] = Raw(b"[" + b",".join(parts) + b"]")
        return text

    def has_text(self, kind: Kind, rule: NameRule, *, is_modern: bool, within: int) -> bool:
        """True if this text is made, and has at most so many bytes."""
        text = self._texts.get((kind, rule, is_modern))
        return text is not None and len(memoryview(text)) <= within

    def texts_of_each(self, kind: Kind, rule: NameRule, *, is_modern: bool) -> Iterator[bytes]:
        """The same by child, without the brackets around it. Raises ValueError: it cannot be written as such."""
        return (self._text(child, kind, rule, is_modern=is_modern) for child in self._listed())

    def steps(self, kind: Kind, rule: NameRule, *, is_modern: bool | None = None) -> Iterator[None]:
        """Make what is listed of each child, in steps; also as JSON, if it is for clients of an era.

        Raises:
            ValueError: it cannot be written as such.
        """
        for child in self._listed():
            yield from self._section(child).steps(kind, rule, is_modern=is_modern)
            yield from self._finding_lost(child, kind, rule)
            yield

    def items_of_each(self, kind: Kind, rule: NameRule) -> Iterator[list[dict[str, Any]]]:
        """The listed components as wire objects, by child."""
        return (self._items(child, kind, rule) for child in self._listed())

    def cache_hint(self, kind: Kind) -> CacheHint:
        """The cache hint of the list of a kind: as long as each child says of its own."""
        found = [self.catalogue_of(child) for child in self._listed()]
        serving = [catalogue for catalogue in found if catalogue is not None]
        hints = [catalogue.hints.get(kind, CacheHint()) for catalogue in serving if kind in catalogue.components]
        return CacheHint(min((hint.ttl_ms for hint in hints), default=0))

    def names(self, kind: Kind, rule: NameRule) -> Iterator[str]:
        """The listed public names (or URIs) of a kind. Each is looked at when it is its turn."""
        for child in self._listed():
            doubtful = self._doubtful(child, kind, rule)
            for index, (public, route) in enumerate(self._section(child).named(kind, rule).pairs):
                if index not in doubtful or self._is_owner(kind, public, route):
                    yield public

    def with_key(self, uri: str) -> Iterator[str]:
        """The public addresses of the listed resources that their servers call so."""
        listed = self._listed() if self._prefix else ()
        having = (child for child in listed if self._section(child).index(Kind.RESOURCE, uri) is not None)
        return (public_uri(child.key, uri) for child in having)

    def served(self, kind: Kind) -> Iterator[Route]:
        """The listed routes of a kind, in order."""
        for child in self._listed():
            yield from self._section(child).routes[kind]

    def sections(self) -> dict[str, Section]:
        """The listed routes of each child, in order."""
        return {child.key: self._section(child) for child in self._listed()}

    def owners(self, kind: Kind, name: str) -> list[str]:
        """The servers that offer something by its own name, as they were last listed, be it taken up or not."""
        return [
            child.key
            for child in self._children
            if self._section(child).index(kind, name) is not None or name in self._left_out(child, kind)
        ]

    def unlisted(self, kind: Kind) -> list[str]:
        """The servers of which it is not known what they offer of a kind."""
        return [child.key for child in self._children if self._may_have_more(child, kind)]

    def named(self, kind: Kind, rule: NameRule) -> Iterator[tuple[str, Route]]:
        """The list for a client, in order: the public name or URI, and its route."""
        return chain.from_iterable(pairs for _, pairs in self.named_of_each(kind, rule))

    def named_of_each(self, kind: Kind, rule: NameRule) -> Iterator[tuple[Child, list[tuple[str, Route]]]]:
        """The same by child. While nothing is another in what a child has, its list is the same object."""
        return ((child, self._named_of(child, kind, rule)) for child in self._listed())

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
        publish, address = self.publisher(child), {"uri": original}
        is_page = original.startswith(SCHEME)
        return Target(
            child,
            address,
            publish,
            None,
            publish_read_result,
            is_resource=True,
            addressed="contents",
            is_app_page=is_page,
        )

    def of_template_completion(self, child: Child, original: str, ref: Params) -> Target:
        """The target of a completion for a template's variable."""
        return Target(child, {"ref": {**ref, "uri": original}}, self.publisher(child), is_resource=True)

    def target(self, method: str, params: Params) -> Target | None:
        """The target of a call whose component is known; None for all else."""
        if method == methods.TOOLS_CALL.name:
            return self._target_of_tool(params.get("name"))
        if method == methods.PROMPTS_GET.name:
            route = self._named(Kind.PROMPT, params.get("name"))
            return target_of_prompt(route) if route else None
        if method == methods.RESOURCES_READ.name:
            found = self._addressed(params.get("uri"))
            return self.of_resource(*found) if found else None
        ref = params.get("ref")
        return self._completed(ref) if method == methods.COMPLETE.name and isinstance(ref, dict) else None

    def _target_of_tool(self, name: Any) -> Target | None:
        if not isinstance(name, str):
            return None
        target = self._targets.get(name)
        if target is None and (route := self.find(Kind.TOOL, name)) is not None:
            catalogue = self.catalogue_of(route.child)
            mirrors_headers = catalogue is not None and route.original in catalogue.header_schemas
            target = self._targets[name] = replace(target_of_tool(route), mirrors_headers=mirrors_headers)
        return target

    def _completed(self, ref: Params) -> Target | None:
        if ref.get("type") == "ref/resource":
            found = self._addressed(ref.get("uri"))
            return self.of_template_completion(*found, ref) if found else None
        route = self._named(Kind.PROMPT, ref.get("name"))
        return target_of_completion(route, ref) if route else None

    def _named(self, kind: Kind, name: Any) -> Route | None:
        return self.find(kind, name) if isinstance(name, str) else None

    def _addressed(self, uri: Any) -> tuple[Child, str] | None:
        return self.find_uri(uri) if isinstance(uri, str) else None

    def conflicts(self, rule: NameRule) -> list[NameConflictError]:
        """Every public name under `rule` that two children offer."""
        found = []
        for kind in Kind:
            owners: dict[str, str] = {}
            for child in self._listed():
                if kind in NAMED and not self._has_rivals(child, kind):
                    continue
                pairs = self._section(child).named(kind, rule).pairs
                for public, _ in (pairs[index] for index in sorted(self._doubtful(child, kind, rule))):
                    owner = owners.setdefault(public, child.key)
                    if owner != child.key:
                        found.append(NameConflictError(public, owner, child.key))
        return found

    def _listed(self) -> Iterator[Child]:
        return (child for child in self._children if child.is_listed)

    def _names_of(self, child: Child, kind: Kind, rule: NameRule) -> dict[str, str]:
        """The public name of each component of a child that is listed, by its own name."""
        return {route.original: public for public, route in self._named_of(child, kind, rule)}

    # The list of one child.

    def _named_of(self, child: Child, kind: Kind, rule: NameRule) -> list[tuple[str, Route]]:
        return self._kept(self._section(child).named(kind, rule).pairs, child, kind, rule)

    def _items(self, child: Child, kind: Kind, rule: NameRule) -> list[dict[str, Any]]:
        return self._kept(self._section(child).items(kind, rule), child, kind, rule)

    def _text(self, child: Child, kind: Kind, rule: NameRule, *, is_modern: bool) -> bytes:
        section, items = self._section(child), self._items(child, kind, rule)
        if items is not section.items(kind, rule):
            return text_of(kind, items, is_modern=is_modern)
        return section.text(kind, rule, is_modern=is_modern)

    def _kept(self, listed: list[T], child: Child, kind: Kind, rule: NameRule) -> list[T]:
        """The list without those whose public names lead elsewhere; the same list, if there are none."""
        for _ in self._finding_lost(child, kind, rule):
            pass
        lost = self._lost.get((child.key, kind, rule))
        return [each for index, each in enumerate(listed) if index not in lost] if lost else listed

    def _finding_lost(self, child: Child, kind: Kind, rule: NameRule) -> Iterator[None]:
        """Find, in steps, the indices in the list of a child of the components under a name that leads elsewhere."""
        doubtful = self._doubtful(child, kind, rule)
        if not doubtful:
            return iter(())
        key = (child.key, kind, rule)
        return made_together(self._making, self._lost, key, lambda: self._find_lost(child, kind, rule, doubtful))

    def _find_lost(self, child: Child, kind: Kind, rule: NameRule, doubtful: Collection[int]) -> Iterator[None]:
        pairs = self._section(child).named(kind, rule).pairs
        lost: set[int] = set()
        for number, index in enumerate(doubtful):
            if not self._is_owner(kind, *pairs[index]):
                lost.add(index)
            if number % _STEP == _STEP - 1:
                yield
        self._lost[child.key, kind, rule] = lost

    def _is_owner(self, kind: Kind, public: str, route: Route) -> bool:
        owner = self.find(kind, public)
        return owner is not None and (owner.child, owner.original) == (route.child, route.original)

    def _doubtful(self, child: Child, kind: Kind, rule: NameRule) -> Collection[int]:
        """The indices in the list of a child of the components under a name that something else can have."""
        named = self._section(child).named(kind, rule)
        return range(len(named.pairs)) if self._has_rivals(child, kind) else named.doubtful

    def _has_rivals(self, child: Child, kind: Kind) -> bool:
        """True if others may have any of a child's names, because one key begins like the other."""
        if not self._prefix or kind not in NAMED:
            return not self._prefix and len(self._children) > 1
        return child.key in self._rivals

    @cached_property
    def _rivals(self) -> frozenset[str]:
        found: set[str] = set()
        for head in self._by_head:
            rivals = list(self._beginning(head))
            found.update(child.key for child in rivals if len(rivals) > 1)
        for key in self._others:
            found.update(child.key for child in self._beginning(_head_of(key)) if child.key != key)
        return frozenset(found)

    def _beginning(self, start: str) -> Iterator[Child]:
        """The children with whose keys this begins, if it is written as strictly as they are."""
        return chain.from_iterable(self._by_head.get(start[:end], ()) for end in range(1, len(start) + 1))

    def publisher(self, child: Child) -> Publish:
        """The function that publishes this child's addresses for clients; None where they stay as they are."""
        return partial(public_uri, child.key) if self._prefix else None

    # The owner of a name.

    def _search(self, kind: Kind, name: str) -> Route | None:
        claimants = list(self._claimants(kind, name))
        claims = (claim for child in claimants for claim in self._claims(child, kind, name))
        best = min(claims, default=None)
        if best is None or (kind in NAMED and self._prefix and self._is_open(kind, name, best, claimants)):
            return None
        return self._section(self._children[best[1]]).routes[kind][best[2]]

    def begins_like_another(self, name: str, child: Child) -> bool:
        """True if a name begins with a key that is longer than this child's, be its server here or not."""
        start = loose(name[:KEY_HEAD])
        return any(start[:end] in self._heads for end in range(len(_head_of(child.key)) + 1, len(start) + 1))

    def _is_open(self, kind: Kind, name: str, best: Claim, claimants: Sequence[Child]) -> bool:
        """True if a child whose offer is unknown may have the name with as much right."""
        level, index, _ = best
        others = (
            child for child in claimants if self._indices[child.key] != index and self._may_have_more(child, kind)
        )
        return any(self._least_level(child, name) <= level for child in others)

    def _least_level(self, child: Child, name: str) -> int:
        """The best level of the name among the spellings of something of this child."""
        if is_hashed(name) or any(name.startswith(rule.head(child.key)) for rule in self._listed_rules):
            return 1
        return _UNDERSTOOD

    def _claimants(self, kind: Kind, name: str) -> Iterable[Child]:
        if kind in NAMED:
            with_key = self._beginning(loose(name[:KEY_HEAD]))
            if self._prefix:
                key, mark, _ = name.partition(":")
                if mark and (key in self._by_key or key in self._others):
                    return [self._by_key[key]] if key in self._by_key else ()
                return with_key
            return self._children if is_hashed(name) else chain(with_key, self._having(kind, name))
        parts = split_public_uri(name) if self._prefix else None
        if parts is None:
            return self._having(kind, name)
        return [self._by_key[parts[0]]] if parts[0] in self._by_key else ()

    def _having(self, kind: Kind, name: str) -> Iterable[Child]:
        """The children that have something of this name without a key."""
        return (child for child in self._children if self._section(child).has_without_key(kind, name))

    def _claims(self, child: Child, kind: Kind, name: str) -> Iterator[Claim]:
        section, index = self._section(child), self._indices[child.key]
        if kind not in NAMED:
            for level, find in enumerate((section.addressed, section.rewritten)):
                found = find(kind, name)
                if found is not None and not self._is_kept_back(kind, section.routes[kind][found]):
                    yield level, index, found
                    break
            return
        for found in section.spelled(kind, name):
            route = section.routes[kind][found]
            level = 0 if self._is_kept_back(kind, route) else self._level(route, name)
            if level < _UNDERSTOOD or not self._prefix or not self.begins_like_another(name, child):
                yield level, index, found
        for found in () if self._prefix else section.bare(kind, name):
            route = section.routes[kind][found]
            if not self._is_kept_back(kind, route):
                yield self._level(route, name), index, found

    def _level(self, route: Route, name: str) -> int:
        """The level of a spelling among all spellings of a component."""
        key = route.child.key
        if name == (f"{key}:{route.name}" if self._prefix else route.name):
            return 0
        is_shown = any(name == rule.public_name(key, route.name) for rule in self._listed_rules)
        return 1 if is_shown else _UNDERSTOOD

    def _is_kept_back(self, kind: Kind, route: Route) -> bool:
        """True if a name without a prefix may belong to a child before this one."""
        if self._prefix:
            return False
        index = self._indices[route.child.key]
        return self._kept_back.get((kind, ""), index) < index or self._kept_back.get((kind, route.name), index) < index

    @cached_property
    def _kept_back(self) -> dict[tuple[Kind, str], int]:
        """By name, the index of the first child that may have it and does not show it; "" stands for any name."""
        found: dict[tuple[Kind, str], int] = {}
        for index, child in enumerate(self._children):
            for kind in Kind:
                names = {""} if self._may_have_more(child, kind) else self._left_out(child, kind)
                for name in names:
                    found.setdefault((kind, name), index)
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

    def _section(self, child: Child) -> Section:
        """The section of a child, made at the first look."""
        section = self._sections.get(child.key)
        if section is None:
            tools = None if self._tools is None else self._tools.basis
            basis = child, self.catalogue_of(child), self._withdrawn.get(child.key), tools
            section = self._latest.get(child.key)
            if section is None or section.basis != basis:
                routes = {kind: self._routes(child, kind) for kind in Kind}
                section = Section(child.key, basis, routes, self.publisher(child), prefix=self._prefix)
                self._latest[child.key] = section
            self._sections[child.key] = section
        return section

    def _routes(self, child: Child, kind: Kind) -> Sequence[Route]:
        if kind is Kind.TOOL:
            return tuple(self._tools_of(child))
        make = partial(Route, child, publish=self.publisher(child))
        return Routes(kind, offered(self.catalogue_of(child), kind), make)

    def _tools_of(self, child: Child) -> Iterator[Route]:
        changes = self._changes.get(child.key, {})
        publish = self.publisher(child)
        withdrawn = self._withdrawn.get(child.key, ())
        for component in offered(self.catalogue_of(child), Kind.TOOL):
            original = component["name"]
            if original in withdrawn:
                continue
            if self._tools is not None and not self._tools.has(child.key, original):
                continue
            change = changes.get(original)
            if change is None:
                yield Route(child, original, component, publish=publish)
            elif not change.hidden:
                yield Route(child, original, change.applied(component), change.name, publish)

    def _has_template_for(self, child: Child, uri: str) -> bool:
        templates = offered(self.catalogue_of(child), Kind.TEMPLATE)
        return fits_any((template["uriTemplate"] for template in templates), uri, otherwise=False)

    def _may_have_more(self, child: Child, kind: Kind) -> bool:
        """True if the offer of a child of a kind is unknown: it has never been listed, or not of this kind."""
        catalogue = self.catalogue_of(child)
        return catalogue is None or catalogue.left_out.get(kind, frozenset()) is None


def _head_of(key: str) -> str:
    """The prefix of each spelling with a server's key, as the strictest client writes it."""
    return loose(f"{key}_")[:KEY_HEAD]


def offered(catalogue: Catalogue | None, kind: Kind) -> Sequence[Component]:
    return catalogue.of(kind) if catalogue is not None else ()


def target_of_tool(route: Route) -> Target:
    address, schema = {"name": route.original}, route.component.get("inputSchema")
    return Target(route.child, address, route.publish, schema, publish_tool_result, addressed="content")


def target_of_prompt(route: Route) -> Target:
    address = {"name": route.original}
    return Target(route.child, address, route.publish, None, publish_prompt_result, addressed="messages")


def target_of_completion(route: Route, ref: Params) -> Target:
    """The target of a completion for a prompt's argument."""
    return Target(route.child, {"ref": {**ref, "name": route.original}})
