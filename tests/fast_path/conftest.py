"""What is about the fast path alone is left out where the environment switches it off."""

from __future__ import annotations

import pytest

from fastmcp_aggregator.front.fast_path.http import Exchange
from fastmcp_aggregator.front.fast_path.path import Talkers
from fastmcp_aggregator.settings.model import load_settings

CHOOSE_THEMSELVES = frozenset({"fast_path", "sides", "long_sides"})
"""Fixtures and parameters of tests that switch it on and off."""


@pytest.fixture(autouse=True)
def _fast_path_is_on(request: pytest.FixtureRequest) -> None:
    if not load_settings().fast_path and CHOOSE_THEMSELVES.isdisjoint(request.fixturenames):
        pytest.skip("it counts what takes the fast path, which the environment has switched off")


@pytest.fixture(autouse=True)
def _talkers_are_tried_again(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is begun on the fast path, also of a component whose call before was taken over."""
    if "talkers" not in request.fixturenames:
        monkeypatch.setattr(Talkers, "longest", 0)


@pytest.fixture
def nothing_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no call over HTTP is taken over because its answer does not come soon."""
    monkeypatch.setattr(Exchange, "answer_timeout", 60.0)
