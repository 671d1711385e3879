"""Which template an address may have come from."""

from collections.abc import Iterator

import pytest

from fastmcp_aggregator.naming.uris import fits, fits_any


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


LONG = "{a}b" + "a" * 20 + "{c}"


@pytest.mark.parametrize("otherwise", [False, True])
@pytest.mark.parametrize(
    ("templates", "uri"), [([LONG] * 100_000, "a" * 8192), ([LONG], "a" * 10**7), (["x://{a}"] * 1_000_000, "y://z")]
)
def test_what_takes_too_long_to_compare_is_not_compared(templates: list[str], uri: str, otherwise: bool) -> None:
    asked = 0

    def told() -> Iterator[str]:
        nonlocal asked
        for template in templates:
            asked += 1
            yield template

    assert fits_any(told(), uri, otherwise=otherwise) is otherwise
    assert asked * len(uri) < 10**8
    assert asked < 20_000


def test_any_template_that_is_among_the_first_thousands_is_found() -> None:
    templates = [f"x{number}://{{a}}" for number in range(5000)]
    assert fits_any(templates, "x4999://7", otherwise=False)
    assert not fits_any(templates, "y://7", otherwise=True)
