"""The aggregated instructions."""

from __future__ import annotations

from fastmcp_aggregator.catalogue.snapshot import Catalogue
from fastmcp_aggregator.front.introduction import Introduced, instructions_together


def lines(*servers: Introduced) -> list[str]:
    return instructions_together(servers).splitlines()


def server(key: str, catalogue: Catalogue | None = None, description: str | None = None) -> Introduced:
    return Introduced(key, description, catalogue)


def test_without_servers_the_instructions_say_that_there_are_none() -> None:
    assert instructions_together([]) == "This server combines several MCP servers; none is configured."


def test_every_server_has_a_line_in_config_order_with_its_description_if_it_has_one() -> None:
    first, *rest = lines(server("web", description="Fetches pages."), server("files"), server("a", description=""))
    assert "belongs to the server whose key its name begins with" in first
    assert rest == ["- web: Fetches pages.", "- files", "- a"]


def test_what_a_server_says_about_itself_follows_under_its_key() -> None:
    children = [
        server("web", Catalogue(1, {}, "Be brief.\nBe kind.")),
        server("files"),
        server("quiet", Catalogue(1, {}, None)),
        server("empty", Catalogue(1, {}, "")),
        server("git", Catalogue(1, {}, "Commit.")),
    ]
    assert lines(*children)[6:] == ["", "## web", "Be brief.", "Be kind.", "", "## git", "Commit."]


def test_a_server_that_is_down_keeps_what_it_said() -> None:
    """A client is told once; the child may well be back when it is used."""
    assert lines(server("web", Catalogue(1, {}, "Be brief.")))[-1] == "Be brief."
