"""What real servers offer is listed as they list it, but for names and addresses."""

from __future__ import annotations

from contextlib import suppress

import pytest
from real_answers import canonical, is_enveloped, public_component
from real_fronts import SHARED_FRONTS
from real_servers import LISTS, MODERN_SERVERS, requires_servers
from real_talks import Both
from support.wire import until_answered

pytestmark = [
    pytest.mark.real,
    requires_servers,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.parametrize("both", SHARED_FRONTS, ids=str, indirect=True),
]


@pytest.mark.parametrize("method", LISTS)
async def test_every_component_is_listed_as_its_server_lists_it_in_config_order(both: Both, method: str) -> None:
    list_key, id_field = LISTS[method]

    async def lists() -> tuple[str, str]:
        expected = []
        for key, client in both.direct.items():
            answer = await client.send(method)
            listed = [] if answer.get("error", {}).get("code") == -32601 else answer["result"][list_key]
            expected += [public_component(key, id_field, component) for component in listed]
        assert expected
        return canonical((await both.front.result(method))[list_key]), canonical(expected)

    with suppress(TimeoutError):  # some servers have more tools once they know what their client can do
        await until_answered(lists, lambda pair: pair[0] == pair[1])
    got, expected = await lists()
    assert got == expected


@pytest.mark.parametrize("method", LISTS)
async def test_a_list_has_the_envelope_of_the_clients_era_and_no_other(both: Both, method: str) -> None:
    result = await both.front.result(method)
    if both.kind.is_modern:
        assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
    else:
        assert not is_enveloped(result)


async def test_two_servers_speak_the_modern_era_and_six_the_legacy_one(both: Both) -> None:
    legacy = [key for key, client in both.direct.items() if "error" in await client.send("server/discover")]
    assert set(both.direct) - set(legacy) == MODERN_SERVERS
    assert len(legacy) == 6
