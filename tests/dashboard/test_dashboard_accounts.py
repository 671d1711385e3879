"""Accounts on the dashboard, in a real browser: people log in and out, and operators see and end all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.account_hub import Around, around, key_of
from support.harness import PATIENCE

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
from playwright.sync_api import Browser, Page, expect
from support.chromium import CHROMIUM, entered, launched
from test_dashboard_browser import page_of, row

expect.set_options(timeout=PATIENCE * 1000)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; on Debian: apt-get install chromium"),
    pytest.mark.browser,
]
PEOPLE = ("alice", "bob", "chief")
OPERATES = {"chief": {"call", "operate"}}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


def sign_in(page: Page, place: Around, who: str) -> None:
    page.get_by_label("API key or token").fill(key_of(place, who))
    page.keyboard.press("Enter")
    expect(page.locator("#connection")).to_have_text("Live")


def test_a_person_logs_in_and_out_and_the_operator_sees_it(chromium: Browser, tmp_path: Path) -> None:
    with entered(around(tmp_path, people=PEOPLE, roles=OPERATES, lists="caller")) as place:
        place.server.person = "alice-there"
        hub = f"{place.front.origin}/"
        with page_of(chromium, hub, tolerates=place.server.origin) as page:
            sign_in(page, place, "alice")
            expect(row(page, "crm").get_by_role("button", name="Start crm")).to_be_hidden()
            row(page, "crm").get_by_role("link", name="Your account").click()
            mine = page.locator("#accounts-table tbody tr")
            expect(mine).to_contain_text("not logged in")
            expect(page.locator("#accounts-of-all")).to_be_hidden()
            page.get_by_role("button", name="Log in to crm").click()
            page.get_by_role("heading", name="Logged in").wait_for()
            page.get_by_role("link", name="All accounts").click()
            expect(page.locator("#accounts-summary")).to_have_text("1 of 1 logged in")
            expect(mine).to_contain_text(place.server.issuer)
            with page_of(chromium, f"{hub}#accounts") as operator:
                sign_in(operator, place, "chief")
                expect(operator.locator("#accounts-all-table tbody tr")).to_contain_text("key:alice")
                expect(operator.locator("#accounts-table tbody tr")).to_contain_text("not logged in")
                operator.get_by_role("button", name="Revoke").click()
                operator.locator("dialog.question").get_by_role("button", name="Revoke").click()
                expect(operator.locator("#accounts-all-table tbody tr")).to_have_count(0)
            page.reload()
            expect(mine).to_contain_text("not logged in")
            page.get_by_role("button", name="Log in to crm").click()
            page.get_by_role("link", name="All accounts").click()
            page.get_by_role("button", name="Log out").click()
            page.locator("dialog.question").get_by_role("button", name="Log out").click()
            expect(mine).to_contain_text("not logged in")


def test_an_operator_logs_the_hub_in_at_a_server_that_needs_it(chromium: Browser, tmp_path: Path) -> None:
    with entered(around(tmp_path, people=PEOPLE, roles=OPERATES, strict=False)) as place:
        place.server.revoke("the-hub", also_refresh=True)
        place.server.person = "the-hub"
        with page_of(chromium, f"{place.front.origin}/", tolerates=place.server.origin) as page:
            sign_in(page, place, "chief")
            page.request.post(
                f"{place.front.origin}/restart/crm", headers={"Authorization": f"Bearer {key_of(place, 'chief')}"}
            )
            page.get_by_role("button", name="Log in to crm").click()
            page.get_by_role("heading", name="Logged in").wait_for()
            page.goto(f"{place.front.origin}/")
            expect(row(page, "crm")).to_contain_text("running")
            expect(row(page, "crm").get_by_role("button", name="Log in to crm")).to_have_count(0)


def test_a_hub_without_accounts_has_no_page_of_them(chromium: Browser, tmp_path: Path) -> None:
    with (
        entered(around(tmp_path, people=PEOPLE, roles=OPERATES, servers=0)) as place,
        page_of(chromium, f"{place.front.origin}/") as page,
    ):
        sign_in(page, place, "chief")
        expect(page.locator("#accounts-link")).to_be_hidden()
