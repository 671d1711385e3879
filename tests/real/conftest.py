"""The servers, started twice: behind an aggregator, and directly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from real_fronts import FRONTS, Entries, Front, direct_client, opened
from real_servers import Place, make_place, server_entries
from real_talks import Both, let_them_settle


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def entries(place: Place, tmp_path: Path) -> Entries:
    """All servers, with an empty memory."""
    return server_entries(place, tmp_path)


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=FRONTS, ids=str)
async def both(
    request: pytest.FixtureRequest, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Both]:
    front: Front = request.param
    folder, direct_folder = (tmp_path_factory.mktemp(name) for name in ("behind", "direct"))
    direct_entries = front.behind(server_entries(place, direct_folder))
    async with AsyncExitStack() as stack:
        aggregator, *direct = await asyncio.gather(
            stack.enter_async_context(opened(front, folder, front.behind(server_entries(place, folder)))),
            *(
                stack.enter_async_context(direct_client(key, entry, front.capabilities))
                for key, entry in direct_entries.items()
            ),
        )
        both = Both(front, place, aggregator.client, dict(zip(direct_entries, direct, strict=True)))
        await let_them_settle(both, aggregator.said)
        yield both
