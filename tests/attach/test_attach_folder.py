"""Where the sockets of hubs are."""

from __future__ import annotations

import pytest

from fastmcp_aggregator.attach import folder
from fastmcp_aggregator.attach.folder import require_short, socket_of


@pytest.mark.parametrize("name", ["short", "long" * 30])
def test_a_long_home_keeps_nobody_from_a_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", f"/{name}")
    monkeypatch.setattr(folder, "_is_private", lambda _: False)
    require_short(socket_of("0123456789abcdef"))
