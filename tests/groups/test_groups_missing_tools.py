"""A group that names tools which no server offers: the log says so, once for each change."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from support.harness import config, connected, lean, until
from support.memory import build_aggregator

from fastmcp_aggregator.catalogue.snapshot import Kind

NAME = "fastmcp_aggregator.groups.missing_tools"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What has been said, and is forgotten then."""
    said = [record.getMessage() for record in caplog.records if record.name == NAME]
    caplog.clear()
    return said


async def test_it_is_said_at_the_start_and_after_each_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    path = tmp_path / "group.json"

    def write(*tools: str) -> None:
        path.write_text(json.dumps({"web": {"servers": ["a", "b"], "tools": tools}}))

    write("a:echo", "a:ecko", "b:fresh", "pid", "none*", "b:*")
    async with build_aggregator(config(a=lean(), b=lean()), groups=str(path)) as hub:
        assert sorted(warnings(caplog)) == [  # in the order in which the servers were listed
            "the group 'web' names the tool 'a:ecko', which none of its servers offers; did you mean 'a:echo'?",
            "the group 'web' names the tool 'b:fresh', which none of its servers offers",
            "the group 'web' names the tool 'none*', which none of its servers offers",
            "the group 'web' names the tool 'pid', which several of its servers offer; write 'a:pid', for example",
        ]
        await hub.reload()
        assert warnings(caplog) == []
        async with connected(hub) as client:
            await client.call("b:add_tool", name="fresh")
            await until(lambda: hub.routes.find(Kind.TOOL, "b:fresh"))
            assert warnings(caplog) == []
            await client.call("b:remove_tool", name="fresh")
            await until(lambda: not hub.routes.find(Kind.TOOL, "b:fresh"))
        assert warnings(caplog) == ["the group 'web' names the tool 'b:fresh', which none of its servers offers"]
        write("a:ecko")
        await hub.reload()
        assert len(warnings(caplog)) == 1
        write("a:echo")
        await hub.reload()
        assert warnings(caplog) == []


@pytest.mark.parametrize("tools", [["gone:echo"], ["echo"]])
async def test_of_a_server_that_has_not_been_listed_nothing_is_said(
    tools: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    groups: dict[str, Any] = {"web": {"servers": ["gone"], "tools": tools}}
    async with build_aggregator(
        config(a=lean(), gone={"command": "no-such-command"}), groups=groups, strict=False, ready_wait=0
    ) as hub:
        await until(lambda: {status.state for status in hub.health().values()} == {"running", "failed"})
    assert warnings(caplog) == []


async def test_a_name_without_a_server_is_told_of_once_while_a_server_is_down(caplog: pytest.LogCaptureFixture) -> None:
    groups: dict[str, Any] = {"web": {"servers": ["gone", "a"], "tools": ["echo", "a:pid", "a*"]}}
    servers = config(a=lean(), gone={"command": "no-such-command"})
    async with build_aggregator(servers, groups=groups, strict=False) as hub:
        await until(lambda: {status.state for status in hub.health().values()} == {"running", "failed"})
        await hub.reload()
    assert warnings(caplog) == [
        "the group 'web' names the tool 'echo', which is ambiguous while 'gone' has not been listed; "
        "write its server in front of it, as in 'gone:echo'"
    ]
