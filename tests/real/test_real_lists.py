"""What real servers offer is listed as they list it, but for names and addresses."""

from __future__ import annotations

import pytest
from real_servers import LISTS, public_component, requires_servers
from real_wire import MODERN, Both, canonical, is_enveloped

pytestmark = [pytest.mark.real, requires_servers]


@pytest.mark.parametrize("method", LISTS)
def test_every_component_is_listed_as_its_server_lists_it_in_config_order(both: Both, method: str) -> None:
    list_key, id_field = LISTS[method]
    expected = [
        public_component(key, id_field, component)
        for key, client in both.direct.items()
        for component in client.list_all(method, list_key)
    ]
    assert expected
    assert canonical(both.front.list_all(method, list_key)) == canonical(expected)


@pytest.mark.parametrize("method", LISTS)
def test_a_list_has_the_envelope_of_the_clients_era_and_no_other(both: Both, method: str) -> None:
    result = both.front.result(method)
    if both.front.version == MODERN:
        assert (result["resultType"], result["cacheScope"]) == ("complete", "private")
    else:
        assert not is_enveloped(result)


def test_two_servers_speak_the_modern_era_and_six_the_legacy_one(both: Both) -> None:
    modern = [key for key, client in both.direct.items() if client.version == MODERN]
    assert modern == ["time", "git"]
