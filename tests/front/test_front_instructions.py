"""The aggregated instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastmcp_aggregator.catalogue.snapshot import Catalogue
from fastmcp_aggregator.front.handshake import instructions


@dataclass
class Server:
    description: str | None = None


@dataclass
class Child:
    """What the instructions look at in a child."""

    key: str
    catalogue: Catalogue | None = None
    server: Server = field(default_factory=Server)


def lines(*children: Child) -> list[str]:
    return instructions(children).splitlines()  # type: ignore[arg-type]


def test_without_servers_the_instructions_say_that_there_are_none() -> None:
    assert instructions([]) == "This server combines several MCP servers; none is configured."


def test_every_server_has_a_line_in_config_order_with_its_description_if_it_has_one() -> None:
    first, *rest = lines(Child("web", server=Server("Fetches pages.")), Child("files"), Child("a", server=Server("")))
    assert "belongs to the server whose key its name begins with" in first
    assert rest == ["- web: Fetches pages.", "- files", "- a"]


def test_what_a_server_says_about_itself_follows_under_its_key() -> None:
    children = [
        Child("web", Catalogue(1, {}, "Be brief.\nBe kind.")),
        Child("files"),
        Child("quiet", Catalogue(1, {}, None)),
        Child("empty", Catalogue(1, {}, "")),
        Child("git", Catalogue(1, {}, "Commit.")),
    ]
    assert lines(*children)[6:] == ["", "## web", "Be brief.", "Be kind.", "", "## git", "Commit."]


def test_a_server_that_is_down_keeps_what_it_said() -> None:
    """A client is told once; the child may well be back when it is used."""
    assert lines(Child("web", Catalogue(1, {}, "Be brief.")))[-1] == "Be brief."
