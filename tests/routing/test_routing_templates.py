"""Which template an address may have come from."""

import pytest

from fastmcp_aggregator.naming.uris import fits


@pytest.mark.parametrize(
    ("template", "uri", "does"),
    [
        ("note:///{id}", "note:///7", True),
        ("note:///{id}", "note:///", True),
        ("note:///{id}", "other:///7", False),
        ("note:///{id}/text", "note:///7/text", True),
        ("note:///{id}/text", "note:///text", False),
        ("note:///{a}-x-{b}", "note:///1-x-2", True),
        ("note:///{a}-x-{b}", "note:///1-y-2", False),
        ("note:///{+path}{?q,r}", "note:///a/b?q=1", True),
        ("note:///fixed", "note:///fixed", True),
        ("note:///fixed", "note:///fixed2", False),
        ("{+any}", "anything:at:all", True),
        ("ab{x}ba", "aba", False),
    ],
)
def test_the_fixed_parts_must_stand_in_the_address_in_their_order(template: str, uri: str, does: bool) -> None:
    assert fits(template, uri) is does
