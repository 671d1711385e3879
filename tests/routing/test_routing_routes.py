"""The table that routes: every accepted name, and the listings that belong to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.doubles import ListedChild

from fastmcp_aggregator.catalogue.snapshot import SPECS, Catalogue, Kind
from fastmcp_aggregator.naming.rules import NameRule, SeparatorSetting, every_spelling
from fastmcp_aggregator.naming.uris import as_pydantic_writes, public_uri
from fastmcp_aggregator.routing import section as section_module
from fastmcp_aggregator.routing import table as table_module
from fastmcp_aggregator.routing.caller_table import CallerTable
from fastmcp_aggregator.routing.route import Route
from fastmcp_aggregator.routing.section import Section
from fastmcp_aggregator.routing.table import Naming, RouteTable

NAMED = (Kind.TOOL, Kind.PROMPT)
ADDRESSED = (Kind.RESOURCE, Kind.TEMPLATE)
CLAUDE = "claude-ai"
SETTINGS: list[SeparatorSetting] = ["auto", ":", "__", ".", "_"]


def child(key: str, *tools: str, is_listed: bool = True, **others: Sequence[str]) -> ListedChild:
    """A child with these tools, and with components of other kinds by id."""
    components = {Kind.TOOL: tools, **{Kind(kind): ids for kind, ids in others.items()}}
    listed = {kind: tuple({SPECS[kind].id_field: id_, "from": key} for id_ in ids) for kind, ids in components.items()}
    return ListedChild(key, Catalogue(1, listed), is_listed)


def table(*children: ListedChild, separator: SeparatorSetting = "auto", prefix: bool = True) -> RouteTable:
    return RouteTable(children, Naming(separator, prefix))  # type: ignore[arg-type]


def found(routes: RouteTable, name: str, kind: Kind = Kind.TOOL) -> tuple[str, str] | None:
    """The server key and the original name."""
    route = routes.find(kind, name)
    return (route.child.key, route.original) if route else None


def listed(routes: RouteTable, client: str | None = None, kind: Kind = Kind.TOOL, **naming: Any) -> list[str]:
    return list(routes.names(kind, Naming(**naming).rule(client)))


# Finding a name.


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("separator", SETTINGS)
def test_a_name_is_found_under_every_spelling_whatever_the_separator(separator: SeparatorSetting, kind: Kind) -> None:
    files = child("files", **{kind: ["read", "a:b", "__x__", "odd name/é", "long" * 30]})
    routes = table(child("other", "x"), files, separator=separator)
    for component in files.catalogue.of(kind):  # type: ignore[union-attr]
        original = component["name"]
        for spelling in every_spelling("files", original):
            assert found(routes, spelling, kind) == ("files", original), spelling


def test_only_the_first_colon_separates() -> None:
    routes = table(child("server", "tool:sub"))
    assert found(routes, "server:tool:sub") == ("server", "tool:sub")
    assert found(routes, "server:tool") is None


@pytest.mark.parametrize("name", ["read", "read_file", ":read_file", "files:", "files", "FILES:read_file", "", "x:y"])
def test_a_name_that_nobody_offers_is_not_found(name: str) -> None:
    assert found(table(child("files", "read_file")), name) is None


def test_a_tool_and_a_prompt_of_one_name_are_two_components() -> None:
    routes = table(child("a", "same", prompts=["same"]))
    tool, prompt = routes.find(Kind.TOOL, "a:same"), routes.find(Kind.PROMPT, "a:same")
    assert tool is not None
    assert prompt is not None
    assert found(routes, "a:same", Kind.RESOURCE) is None


def test_a_route_knows_how_the_child_listed_the_component() -> None:
    files = child("files", "read")
    route = table(files).find(Kind.TOOL, "files__read")
    assert route is not None
    assert route.component is files.catalogue.of(Kind.TOOL)[0]  # type: ignore[union-attr]


# Who is entitled to a spelling.


def test_key_and_name_with_a_colon_beat_what_any_client_is_shown() -> None:
    """Without prefixes, one child's original name can be another's name with a prefix."""
    routes = table(child("files", "read"), child("odd", "files:read"), prefix=False)
    assert found(routes, "files:read") == ("odd", "files:read")


def test_a_name_that_some_client_is_shown_beats_one_that_is_only_understood() -> None:
    """`x_` + `_` + `y` is spelled like `x` + `__` + `y`, which Claude is shown."""
    routes = table(child("x_", "y"), child("x", "y"), separator="auto")
    assert listed(routes, CLAUDE) == [*listed(table(child("x_", "y")), CLAUDE), "x__y"]
    assert found(routes, "x__y") == ("x", "y")


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("key", ["pay_roll", "pay__roll", "pay.roll"])
@pytest.mark.parametrize("is_known", [False, True])
def test_the_name_of_a_server_that_has_not_been_listed_goes_to_no_other(kind: Kind, key: str, is_known: bool) -> None:
    pay = child("pay", **{kind: ["roll:send", "_roll:send", "other"]})
    rival = child(key, "x") if is_known else ListedChild(key, None)
    for separator in SETTINGS:
        routes = table(pay, rival, separator=separator)
        assert found(routes, f"{key}:send", kind) is None
        assert found(routes, "pay:roll:send", kind) == ("pay", "roll:send")
        assert found(routes, "pay:other", kind) == ("pay", "other")


def test_what_no_client_is_shown_belongs_to_the_server_with_the_longest_key() -> None:
    one, other = child("a", "b_c", "b_d"), child("a_b", "c")
    for routes in (table(one, other), table(other, one)):
        assert found(routes, "a_b_c") == ("a_b", "c")
        assert found(routes, "a_b_d") is None
        assert found(routes, "a__b_d") == ("a", "b_d")


@pytest.mark.parametrize("name", ["pay_roll:send", "pay_roll__send", "pay_roll.send", "pay_roll_send"])
def test_no_spelling_of_the_name_of_a_server_outside_of_the_group_goes_to_another(name: str) -> None:
    routes = RouteTable(
        [child("pay", "roll:send", "roll__send", "roll.send", "roll_send")], Naming(), others={"pay", "pay_roll"}
    )  # type: ignore[list-item]
    assert found(routes, name) is None


def test_only_a_name_with_its_own_key_may_be_of_a_server_at_which_the_caller_has_no_account() -> None:
    keys = {"pay", "pay_roll", "mail"}
    pay: Any = ListedChild("pay", None)
    routes = CallerTable(table(child("mail", "send")), [pay], Naming(), None, {}, {}, {}, keys)

    def unknown(name: str) -> str | None:
        route = routes.unknown(Kind.TOOL, name)
        return None if route is None else route.original

    assert [unknown(name) for name in ("pay:x", "pay__x", "pay.x", "pay:roll:x")] == ["x", "x", "x", "roll:x"]
    for name in ("pay_roll:x", "pay_roll__x", "pay_roll_x", "pay.roll.x", "mail:x", "payroll:x"):
        assert unknown(name) is None, name


def test_the_name_of_a_server_that_is_not_in_the_group_goes_to_no_other() -> None:
    routes = RouteTable([child("pay", "roll:send")], Naming(), others={"pay", "pay_roll"})  # type: ignore[list-item]
    assert found(routes, "pay_roll:send") is None
    assert found(routes, "pay:roll:send") == ("pay", "roll:send")
    joined = RouteTable([child("pay", "roll:send")], Naming("_"), others={"pay", "pay_roll"})  # type: ignore[list-item]
    assert listed(joined, separator="_") == []


def test_no_tool_takes_the_name_that_anothers_becomes_for_a_strict_client() -> None:
    honest = child("pay__roll", "send")
    (shortened,) = listed(table(honest), CLAUDE)
    hostile = child("pay", shortened.removeprefix("pay__"))
    for children in ((hostile, honest), (honest, hostile)):
        routes = table(*children)
        assert found(routes, shortened) == ("pay__roll", "send")
        assert len(set(listed(routes, CLAUDE))) == 2


def test_a_spelling_that_may_be_of_a_server_that_has_not_been_listed_waits_for_it() -> None:
    google = child("google", "drive_list", "list")
    waiting, complete = table(google, ListedChild("google_drive", None)), table(google, child("google_drive", "get"))
    for name in ("google_drive_list", "google.drive_list"):
        assert found(waiting, name) is None
        assert found(complete, name) is None
    assert found(waiting, "google__drive_list") == ("google", "drive_list")
    assert found(waiting, "google_list") == ("google", "list")
    waiting = table(google, ListedChild("google_drive", None), separator="_")
    complete = table(google, child("google_drive", "get"), separator="_")
    assert listed(waiting, separator="_") == ["google_list"]
    assert listed(complete, separator="_") == ["google_drive_list", "google_list", "google_drive_get"]


@pytest.mark.parametrize("is_known", [False, True])
def test_the_name_that_a_caller_is_shown_of_its_own_account_beats_one_that_is_only_understood(is_known: bool) -> None:
    names, keys = Naming(), {"pay", "pay_roll"}
    shared = RouteTable([child("pay", "roll__send", "list")], names, others=keys)  # type: ignore[list-item]
    own = child("pay_roll", "send") if is_known else ListedChild("pay_roll", None)
    routes = CallerTable(shared, [own], names, None, {}, {}, {}, keys)  # type: ignore[list-item]
    assert found(routes, "pay_roll__send") == (("pay_roll", "send") if is_known else None)
    assert found(routes, "pay__roll__send") == ("pay", "roll__send")
    assert found(routes, "pay_list") == ("pay", "list")
    assert ("pay_roll__send" in listed(routes, CLAUDE)) == is_known


def test_of_two_with_an_equal_claim_the_first_in_config_order_has_the_name() -> None:
    one, other = child("a", "b_c"), child("a_b", "c")
    assert found(table(one, other, separator="_"), "a_b_c") == ("a", "b_c")
    assert found(table(other, one, separator="_"), "a_b_c") == ("a_b", "c")
    for routes in (table(one, other), table(other, one)):
        assert found(routes, "a:b_c") == ("a", "b_c")
        assert found(routes, "a_b:c") == ("a_b", "c")


@pytest.mark.parametrize("client", [None, CLAUDE, "cursor-vscode"])
@pytest.mark.parametrize("turned", [False, True])
def test_with_an_underscore_as_separator_a_listed_name_leads_to_the_child_it_is_listed_for(
    client: str | None, turned: bool
) -> None:
    children = [child("a", "b_c"), child("a_b", "c"), child("d", "x")]
    routes = table(*(reversed(children) if turned else children), separator="_")
    for component in routes.listing(Kind.TOOL, Naming("_").rule(client)):
        route = routes.find(Kind.TOOL, component["name"])
        assert route is not None
        assert route.component["from"] == component["from"]
    assert "d_x" in listed(routes, client, separator="_")


KEYS = st.lists(st.text(alphabet="ab_é", min_size=1, max_size=4), min_size=1, max_size=3, unique=True)
NAMES = st.lists(st.text(alphabet="ab_:.", min_size=1, max_size=5), max_size=4, unique=True)
CHILDREN = KEYS.flatmap(
    lambda keys: st.tuples(*(st.builds(child_of, st.just(key), NAMES, st.booleans()) for key in keys))
)
CLIENTS = st.sampled_from([None, CLAUDE, "cursor-vscode", "Visual Studio Code"])


def child_of(key: str, names: list[str], is_listed: bool) -> ListedChild:
    return child(key, *names, is_listed=is_listed, resources=[f"x://{name}" for name in names], templates=names)


@given(CHILDREN, st.sampled_from(SETTINGS), st.booleans(), CLIENTS)
def test_whatever_is_listed_for_a_client_is_found_under_that_name(
    children: tuple[ListedChild, ...], separator: SeparatorSetting, prefix: bool, client: str | None
) -> None:
    naming = Naming(separator, prefix)
    routes = RouteTable(children, naming)  # type: ignore[arg-type]
    for kind in Kind:
        id_field = SPECS[kind].id_field
        names = [component[id_field] for component in routes.listing(kind, naming.rule(client))]
        assert len(set(names)) == len(names)
        for component in routes.listing(kind, naming.rule(client)):
            route = routes.find(kind, component[id_field])
            assert route is not None
            assert route.child.is_listed
            assert route.child.key == component["from"]
            if kind in NAMED:
                assert naming.rule(client).public_name(route.child.key, route.name) == component[id_field]


@given(CHILDREN, st.sampled_from(SETTINGS), st.booleans())
def test_every_component_can_be_called_by_key_colon_name(
    children: tuple[ListedChild, ...], separator: SeparatorSetting, prefix: bool
) -> None:
    routes = RouteTable(children, Naming(separator, prefix=prefix))  # type: ignore[arg-type]
    for one in children:
        for component in one.catalogue.of(Kind.TOOL):  # type: ignore[union-attr]
            name = f"{one.key}:{component['name']}" if prefix else component["name"]
            route = routes.find(Kind.TOOL, name)
            assert route is not None
            assert route.original == component["name"]
            assert not prefix or route.child is one


@example((child_of("_", [":"], True), child_of("__", [], False)), "_", None)
@given(CHILDREN, st.sampled_from(SETTINGS), CLIENTS)
def test_every_served_component_is_listed_unless_another_has_its_name(
    children: tuple[ListedChild, ...], separator: SeparatorSetting, client: str | None
) -> None:
    naming = Naming(separator)
    routes = RouteTable(children, naming)  # type: ignore[arg-type]
    names = set(routes.names(Kind.TOOL, naming.rule(client)))
    for route in routes.served(Kind.TOOL):
        public = naming.rule(client).public_name(route.child.key, route.name)
        owner = routes.find(Kind.TOOL, public)
        if owner is None:  # it begins like what another has under `KEY:NAME`
            assert public not in names
            assert public.partition(":")[0] in {child.key for child in children} - {route.child.key}
        else:
            assert (public in names) or (owner.child is not route.child or owner.original != route.original)


# Names without prefixes.


def test_without_prefixes_original_names_are_listed_and_prefixed_ones_are_still_understood() -> None:
    routes = table(child("files", "read", prompts=["ask"]), child("web", "fetch"), prefix=False)
    assert listed(routes, prefix=False) == ["read", "fetch"]
    assert found(routes, "read") == ("files", "read")
    assert found(routes, "ask", Kind.PROMPT) == ("files", "ask")
    assert found(routes, "web:fetch") == found(routes, "web__fetch") == ("web", "fetch")


def test_without_prefixes_one_name_of_two_children_is_listed_once_and_reported_with_both_keys() -> None:
    routes = table(child("one", "same", "own"), child("two", "same"), child("three", "same"), prefix=False)
    assert listed(routes, prefix=False) == ["same", "own"]
    assert found(routes, "same") == ("one", "same")
    assert found(routes, "two:same") == ("two", "same")
    conflicts = routes.conflicts(Naming(prefix=False).rule(None))
    assert [(conflict.public_name, conflict.server_keys) for conflict in conflicts] == [
        ("same", ("one", "two")),
        ("same", ("one", "three")),
    ]


# Conflicts.


def test_with_a_colon_there_are_no_conflicts() -> None:
    routes = table(child("a", "b_c", "x"), child("a_b", "c", "x"), separator=":")
    assert [routes.conflicts(rule) for rule in Naming(":").listed_rules()] == [[]] * len(Naming(":").listed_rules())


def test_two_keys_that_share_an_underscore_conflict_where_it_separates() -> None:
    routes = table(child("a", "b_c"), child("a_b", "c"), separator="_")
    (conflict,) = routes.conflicts(Naming("_").rule(None))
    assert (conflict.public_name, conflict.server_keys) == ("a_b_c", ("a", "a_b"))
    assert routes.conflicts(Naming("auto").rule(None)) == []


def test_a_child_that_is_down_is_in_no_conflict() -> None:
    routes = table(child("a", "b_c", is_listed=False), child("a_b", "c"), separator="_")
    assert routes.conflicts(Naming("_").rule(None)) == []


def test_resources_conflict_too_when_there_are_no_prefixes() -> None:
    routes = table(child("a", resources=["x://y"]), child("b", resources=["x://y"]), prefix=False)
    (conflict,) = routes.conflicts(Naming(prefix=False).rule(None))
    assert conflict.public_name == "x://y"
    assert table(child("a", resources=["x://y"]), child("b", resources=["x://y"])).conflicts(Naming().rule(None)) == []


def test_every_rule_under_which_a_client_sees_names_is_known_once_and_the_plain_one_first() -> None:
    rules = Naming().listed_rules()
    assert rules[0] == NameRule(":")
    assert Naming().rule(CLAUDE) in rules
    assert len(set(rules)) == len(rules)
    assert all(rule.separator == "." for rule in Naming(".").listed_rules())


# Listings.


def test_a_listing_is_in_config_order_and_then_in_the_childs_order() -> None:
    routes = table(child("b", "z", "a"), child("a", "y", "x"))
    assert listed(routes) == ["b:z", "b:a", "a:y", "a:x"]
    assert listed(routes, CLAUDE) == ["b__z", "b__a", "a__y", "a__x"]


@pytest.mark.parametrize("kind", ADDRESSED)
def test_resources_and_templates_are_listed_with_the_key_as_host_whatever_the_separator(kind: Kind) -> None:
    for separator in SETTINGS:
        routes = table(child("a", **{kind: ["note:///{id}", "{+path}"]}), separator=separator)
        assert listed(routes, kind=kind, separator=separator) == ["note://a//{id}", "{+path}"]
    assert listed(table(child("a", **{kind: ["x://y"]}), prefix=False), kind=kind, prefix=False) == ["x://y"]


def test_a_listed_component_is_as_the_child_sent_it_but_for_its_name_and_its_addresses() -> None:
    tool = {"name": "show", "x-unknown": [1], "_meta": {"ui": {"resourceUri": "ui://page"}}}
    one = ListedChild("a", Catalogue(1, {Kind.TOOL: (tool,)}))
    (shown,) = table(one).listing(Kind.TOOL, Naming().rule(None))
    assert shown == {"name": "a:show", "x-unknown": [1], "_meta": {"ui": {"resourceUri": "ui://a/page"}}}
    assert tool["name"] == "show"
    (shown,) = table(one, prefix=False).listing(Kind.TOOL, Naming(prefix=False).rule(None))
    assert shown == tool


def test_a_listing_is_made_once_for_all_clients_of_one_rule() -> None:
    routes = table(child("a", "x"))
    assert routes.listing(Kind.TOOL, Naming().rule("t")) is routes.listing(Kind.TOOL, Naming().rule(None))
    assert routes.listing(Kind.TOOL, Naming().rule(CLAUDE)) is not routes.listing(Kind.TOOL, Naming().rule(None))


def test_a_child_that_is_down_loses_its_listings_and_keeps_its_routes() -> None:
    down = child("down", "x", resources=["n://x"], prompts=["p"], is_listed=False)
    routes = table(down, child("up", "y"))
    assert listed(routes) == ["up:y"]
    assert [listed(routes, kind=kind) for kind in Kind] == [["up:y"], [], [], []]
    assert found(routes, "down:x") == ("down", "x")
    assert found(routes, "down:p", Kind.PROMPT) == ("down", "p")
    assert routes.find_uri("n://down/x") == (down, "n://x")


def test_a_child_that_was_never_up_has_no_routes_and_no_listings() -> None:
    routes = table(ListedChild("new", None, is_listed=False))
    assert found(routes, "new:x") is None
    assert listed(routes) == []


def test_a_name_that_belongs_to_a_child_that_is_down_is_not_listed_for_another() -> None:
    """A call to it would be answered with the news that the first one is down."""
    routes = table(child("a", "same", is_listed=False), child("b", "same", "own"), prefix=False)
    assert found(routes, "same") == ("a", "same")
    assert listed(routes, prefix=False) == ["own"]


# Addresses.


def test_a_listed_resource_is_found_by_its_public_address() -> None:
    files = child("files", resources=["file:///a", "readme"])
    routes = table(files)
    assert routes.find_uri("file://files//a") == (files, "file:///a")
    assert routes.find_uri("readme") == (files, "readme")


def test_an_address_that_nobody_listed_goes_to_the_child_whose_key_it_carries() -> None:
    files = child("files", "x")
    routes = table(files, child("other", "x"))
    assert routes.find_uri("file://files//made/up") == (files, "file:///made/up")
    assert routes.find_uri("urn://files:/isbn:1") == (files, "urn:isbn:1")
    assert routes.find_uri("file://files//é%20ü") == (files, "file:///é%20ü")


@pytest.mark.parametrize(
    "uri", ["file:///a", "file://unknown//a", "file://FILES//a", "readme", "", "file://files", "://"]
)
def test_an_address_without_a_known_key_is_not_found(uri: str) -> None:
    assert table(child("files", "x"), child("other", "x")).find_uri(uri) is None


def test_without_prefixes_an_address_that_fits_a_template_belongs_to_the_first_child_that_has_one() -> None:
    one, two = child("one", templates=["x://{id}/text"]), child("two", templates=["x://{id}", "y://{id}"])
    both = table(one, two, prefix=False)
    assert both.find_uri("x://7/text") == (one, "x://7/text")
    assert both.find_uri("x://7") == (two, "x://7")
    assert both.find_uri("z://7") is None


def test_without_prefixes_any_other_unlisted_address_can_only_be_the_only_childs() -> None:
    one, two = child("one", resources=["x://1"]), child("two", resources=["x://2"])
    alone = table(one, prefix=False)
    assert alone.find_uri("x://1") == (one, "x://1")
    assert alone.find_uri("anything at all") == (one, "anything at all")
    both = table(one, two, prefix=False)
    assert both.find_uri("x://2") == (two, "x://2")
    assert both.find_uri("x://3") is None
    assert table(prefix=False).find_uri("x://1") is None


def test_an_address_is_published_under_the_key_unless_there_are_no_prefixes() -> None:
    files = child("files", "x")
    publish = table(files).publisher(files)  # type: ignore[arg-type]
    assert publish is not None
    assert publish("file:///a") == "file://files//a"
    assert table(files, prefix=False).publisher(files) is None  # type: ignore[arg-type]


def test_a_table_of_no_children_is_empty() -> None:
    routes = table()
    assert [listed(routes, kind=kind) for kind in Kind] == [[]] * 4
    assert routes.find_uri("x://y") is None


# What is offered and not taken up.


def without(key: str, kind: Kind, *names: str) -> ListedChild:
    """A child of which these were left out; without names, one whose list could not be read."""
    return ListedChild(key, Catalogue(1, left_out={kind: frozenset(names) or None}))


@pytest.mark.parametrize("kind", Kind)
def test_what_a_child_offers_and_is_left_out_keeps_its_name_without_prefixes(kind: Kind) -> None:
    name = "send" if kind in NAMED else "file://a/{x}"
    evil = child("evil", **{kind: [name, f"{name}2"]})
    routes = table(without("good", kind, name), evil, prefix=False)
    assert found(routes, name, kind) is None
    assert found(routes, f"{name}2", kind) == ("evil", f"{name}2")
    assert listed(routes, kind=kind, prefix=False) == [f"{name}2"]
    assert found(table(evil, without("good", kind, name), prefix=False), name, kind) == ("evil", name)


@pytest.mark.parametrize("kind", Kind)
def test_a_list_that_could_not_be_read_may_have_any_name_without_prefixes(kind: Kind) -> None:
    name = "send" if kind in NAMED else "file://a"
    routes = table(without("good", kind), child("evil", **{kind: [name]}), prefix=False)
    assert found(routes, name, kind) is None
    if kind in ADDRESSED:
        assert routes.find_uri(name) is None


@pytest.mark.parametrize("kind", NAMED)
def test_what_is_left_out_has_an_owner_all_the_same(kind: Kind) -> None:
    evil = child("evil", **{kind: ["send"]})
    assert table(without("good", kind, "send"), evil).owners(kind, "send") == ["good", "evil"]
    assert table(without("good", kind), evil).unlisted(kind) == ["good"]
    assert table(without("good", kind, "other"), evil).owners(kind, "send") == ["evil"]


# A change of one child.


def test_what_a_change_makes_anew_is_of_the_child_that_has_changed() -> None:
    still, changing = child("still", "x", resources=["n://x"]), child("changing", "y")
    rule, sections = Naming().rule(CLAUDE), {}
    before = RouteTable([still, changing], Naming(), sections=sections)  # type: ignore[arg-type]
    listed_before = {one.key: pairs for one, pairs in before.named_of_each(Kind.TOOL, rule)}
    changing.catalogue = child("changing", "z").catalogue
    after = RouteTable([still, changing], Naming(), sections=sections)  # type: ignore[arg-type]
    listed_after = {one.key: pairs for one, pairs in after.named_of_each(Kind.TOOL, rule)}
    assert listed_after["still"] is listed_before["still"]
    assert after.sections()["still"] is before.sections()["still"]
    assert listed(after, CLAUDE) == ["still__x", "changing__z"]
    assert found(after, "changing:y") is None


def test_a_name_is_looked_for_in_the_children_alone_whose_keys_it_can_begin_with() -> None:
    sections: dict[str, Any] = {}
    others = [child(f"server-{number}", "x") for number in range(20)]
    routes = RouteTable([*others, child("a", "x", resources=["n://x"])], Naming(), sections=sections)  # type: ignore[arg-type]
    assert found(routes, "server-1:x") == found(routes, "server-1__x") == ("server-1", "x")
    assert found(routes, "server-19:y") is None
    assert routes.find_uri("n://a/x") is not None
    assert set(sections) == {"server-1", "server-19", "a"}


def test_without_prefixes_a_name_that_ends_like_a_shortened_one_is_listed_shortened_and_found() -> None:
    (hashed,) = listed(table(child("a", "odd name"), prefix=False), CLAUDE, prefix=False)
    both = child("a", "odd name", hashed)
    (name,) = listed(table(both, prefix=False), CLAUDE, prefix=False)
    assert name.startswith(f"{hashed}_")
    assert found(table(both, prefix=False), name) == ("a", hashed)
    assert found(table(both, prefix=False), hashed) == ("a", hashed)


def test_an_address_without_its_key_is_looked_up_in_each_server() -> None:
    routes = table(child("a", resources=["x://1", "x://2"]), child("b", resources=["x://1"]), child("c"))
    assert list(routes.with_key("x://1")) == ["x://a/1", "x://b/1"]
    assert list(routes.with_key("x://3")) == []
    assert list(table(child("a", resources=["x://1"]), child("b"), prefix=False).with_key("x://1")) == []


def test_of_what_is_listed_no_more_is_looked_at_than_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = [f"x://{each}" for each in range(1000)]
    routes = table(child("a", resources=addresses), child("b", resources=addresses), prefix=False)
    looked_at: list[str] = []
    find = routes.find

    def finding(kind: Kind, name: str) -> Any:
        looked_at.append(name)
        return find(kind, name)

    monkeypatch.setattr(routes, "find", finding)
    names = routes.names(Kind.RESOURCE, Naming(prefix=False).rule(None))
    assert [next(names) for _ in range(3)] == ["x://0", "x://1", "x://2"]
    assert looked_at == ["x://0", "x://1", "x://2"]


@pytest.mark.parametrize("kind", ADDRESSED)
@pytest.mark.parametrize("prefix", [True, False])
def test_a_look_up_makes_the_route_of_what_is_looked_up_alone(
    kind: Kind, prefix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    class Counted(Route):
        def __init__(self, child: Any, original: str, *more: Any, **named: Any) -> None:
            made.append(original)
            Route.__init__(self, child, original, *more, **named)

    monkeypatch.setattr(table_module, "Route", Counted)
    routes = table(child("a", **{kind: [f"x://{number}/y" for number in range(10_000)]}), prefix=prefix)
    assert found(routes, "x://a/7/y" if prefix else "x://7/y", kind) == ("a", "x://7/y")
    assert found(routes, "x://a/nothing" if prefix else "x://nothing", kind) is None
    assert found(routes, "nothing", kind) is None
    assert set(made) == {"x://7/y"}


@pytest.mark.parametrize("kind", ADDRESSED)
@pytest.mark.parametrize("prefix", [True, False])
@given(originals=st.lists(st.text("/:{}ax", max_size=8).map(lambda rest: f"file:{rest}"[rest.count("x") % 3 * 5 :])))
def test_every_address_leads_to_the_first_of_those_that_are_written_so(
    kind: Kind, prefix: bool, originals: list[str]
) -> None:
    originals = [each for each in dict.fromkeys(originals) if each]
    routes = table(child("a", **{kind: originals}), prefix=prefix)
    public = [public_uri("a", each) if prefix else each for each in originals]
    for name in {*public, *map(as_pydantic_writes, public), *(each + "/" for each in public)}:
        exactly = [original for original, each in zip(originals, public, strict=True) if each == name]
        nearly = [
            original for original, each in zip(originals, public, strict=True) if as_pydantic_writes(each) == name
        ]
        expected = next(iter(exactly or nearly), None)
        assert found(routes, name, kind) == (None if expected is None else ("a", expected))


@pytest.mark.parametrize("kind", ADDRESSED)
@pytest.mark.parametrize("prefix", [True, False])
def test_an_address_that_is_there_as_it_is_written_is_not_looked_for_otherwise(
    kind: Kind, prefix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten: list[str] = []
    monkeypatch.setattr(Section, "rewritten", lambda section, kind, name: rewritten.append(name))
    routes = table(child("a", **{kind: ["file:///x"]}), prefix=prefix)
    assert found(routes, "file://a//x" if prefix else "file:///x", kind) == ("a", "file:///x")
    assert rewritten == []


def test_a_long_list_is_made_in_steps_and_is_the_same_as_at_once() -> None:
    for kind in Kind:
        names = [f"x{number}" if kind in NAMED else f"x://{number}" for number in range(1800)]
        of_one = child("a", *names) if kind is Kind.TOOL else child("a", **{kind: names})
        at_once, in_steps = table(of_one), table(of_one)
        rule = Naming().rule(CLAUDE)
        assert sum(1 for _ in in_steps.steps(kind, rule, is_modern=True)) >= 9
        assert list(in_steps.named(kind, rule)) == list(at_once.named(kind, rule))
        text = at_once.listing_as_json(kind, rule, is_modern=True)
        assert bytes(in_steps.listing_as_json(kind, rule, is_modern=True)) == bytes(text)
        assert [each[SPECS[kind].id_field] for each in json.loads(bytes(text))] == list(at_once.names(kind, rule))


def test_a_list_that_several_ask_for_meanwhile_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    routes, rule, made = table(child("a", *[f"x{number}" for number in range(1800)])), Naming().rule(None), list[int]()
    text_of = section_module.text_of
    monkeypatch.setattr(
        section_module, "text_of", lambda kind, items, **era: (made.append(len(items)), text_of(kind, items, **era))[1]
    )
    asking = [routes.steps(Kind.TOOL, rule, is_modern=True) for _ in range(20)]
    while asking:
        asking = [steps for steps in asking if next(steps, "made") != "made"]
    assert sum(made) == 1800
    assert len(json.loads(bytes(routes.listing_as_json(Kind.TOOL, rule, is_modern=True)))) == sum(made) == 1800


def test_what_cannot_be_made_is_told_all_who_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    routes, rule = table(child("a", "x")), Naming().rule(None)

    def fail(*_: Any, **__: Any) -> bytes:
        raise ValueError("no text")

    monkeypatch.setattr(section_module, "text_of", fail)
    asking = [routes.steps(Kind.TOOL, rule, is_modern=True) for _ in range(2)]
    for steps in asking:
        with pytest.raises(ValueError, match="no text"):
            list(steps)


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("kind", Kind)
def test_a_name_without_a_key_is_looked_up_and_not_looked_for_among_all(
    kind: Kind, prefix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Indices(dict[str, int]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("all are looked at")

    indices = Section._indices
    monkeypatch.setattr(Section, "_indices", lambda section, kind: Indices(indices(section, kind)))
    routes = table(child("a", "x", **{each: ["x"] for each in Kind if each is not Kind.TOOL}), prefix=prefix)
    assert found(routes, "y", kind) is None
    assert found(routes, "x", kind) == (("a", "x") if kind not in NAMED or not prefix else None)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("is_open", [False, True])
def test_who_has_a_name_of_a_long_list_is_found_in_the_same_steps(
    kind: Kind, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"x{number}" if kind in NAMED else f"file:///{number}" for number in range(1200)]
    children = [child(key, *names) if kind is Kind.TOOL else child(key, **{kind: names}) for key in "ab"]
    routes = table(*([ListedChild("new", None)] if is_open else []), *children, prefix=False)
    rule = Naming(prefix=False).rule(CLAUDE)
    search, searches, most = routes._search, 0, 0

    def counted(kind: Kind, name: str) -> Route | None:
        nonlocal searches
        searches += 1
        return search(kind, name)

    monkeypatch.setattr(routes, "_search", counted)
    for _ in routes.steps(kind, rule, is_modern=True):
        most, searches = max(most, searches), 0
    assert 0 < most <= 200
    assert searches <= 200
    searches, shown = 0, [] if is_open else names
    assert [item[SPECS[kind].id_field] for item in routes.listing(kind, rule)] == shown
    assert len(json.loads(bytes(routes.listing_as_json(kind, rule, is_modern=True)))) == len(shown)
    assert searches == 0


def test_to_one_caller_what_all_share_is_named_first() -> None:
    own = child("own", resources=["x://1"])
    shared = table(child("a", "t", resources=["x://1"]))
    routes = CallerTable(shared, [own], Naming(), None, {}, {}, {"own": own.catalogue}, ())  # type: ignore[dict-item,list-item]
    assert listed(routes, kind=Kind.RESOURCE) == ["x://a/1", "x://own/1"]
    assert list(routes.with_key("x://1")) == ["x://a/1", "x://own/1"]
