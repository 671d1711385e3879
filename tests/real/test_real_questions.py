"""What real servers ask FastMCP's own client, and complete for it: as directly, in both eras."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp_types import PromptReference
from real_fastmcp import ASKABLE, ERAS, aggregated, direct_client
from real_fronts import Entries
from real_servers import Place, aggregator_command, requires_servers, safe_environment
from support.wire import PATIENCE

from fastmcp_aggregator import build_aggregator

pytestmark = [pytest.mark.real, requires_servers]

each_era = pytest.mark.parametrize("mode", ERAS)


@each_era
async def test_the_client_is_asked_what_the_server_asks_it_directly_and_its_answers_count(
    mode: str, entries: Entries
) -> None:
    questions = [
        ("trigger-sampling-request", {"prompt": "Grüße"}),
        ("trigger-elicitation-request", {}),
        ("trigger-url-elicitation", {"url": "https://example.org/", "elicitationId": "an id"}),
        ("get-roots-list", {}),
    ]
    async with (
        aggregated(entries, "everything") as hub,
        Client(hub, mode=mode, **ASKABLE) as client,
        direct_client(entries["everything"], **ASKABLE) as direct,
    ):
        for tool, arguments in questions:
            answer = await client.call_tool(f"everything:{tool}", arguments)
            assert answer.content == (await direct.call_tool(tool, arguments)).content


@each_era
async def test_the_client_completes_arguments_as_it_does_directly(mode: str, entries: Entries) -> None:
    argument, known = {"name": "name", "value": ""}, {"department": "Sales"}
    async with (
        aggregated(entries, "everything") as hub,
        Client(hub, mode=mode, **ASKABLE) as client,
        direct_client(entries["everything"]) as direct,
    ):
        public = PromptReference(type="ref/prompt", name="everything:completable-prompt")
        completion = await client.complete(public, argument, known)
        assert completion.values == ["David", "Eve", "Frank"]
        original = PromptReference(type="ref/prompt", name="completable-prompt")
        assert completion == await direct.complete(original, argument, known)


@pytest.mark.filterwarnings("ignore:The roots capability is deprecated")
async def test_the_roots_of_the_client_are_the_folders_of_a_file_server_and_follow_their_changes(
    entries: Entries, place: Place, tmp_path: Path
) -> None:
    folders = [place.other_files]

    async def roots(context: Any) -> list[str]:
        return [folder.as_uri() for folder in folders]

    async def allowed(client: Client[Any]) -> list[str]:
        result = await client.call_tool("filesystem:list_allowed_directories")
        return str(result.content[0].text).splitlines()[1:]

    config = tmp_path / "config.json"
    config.write_text(json.dumps({"mcpServers": {"filesystem": entries["filesystem"]}}))
    (command, *arguments), env = aggregator_command(config), safe_environment()
    transport = StdioTransport(command, arguments, env=env, keep_alive=False)
    async with asyncio.timeout(PATIENCE), Client(transport, mode="legacy", roots=roots) as client:
        while await allowed(client) != list(map(str, folders)):
            pass
        folders[:] = [place.files, place.repository]
        await client.send_roots_list_changed()
        while await allowed(client) != list(map(str, folders)):
            pass


async def test_clients_of_an_isolated_server_each_have_their_own_roots_and_their_own_state(entries: Entries) -> None:
    servers = {key: {"isolation": "session"} for key in ("everything", "sequential-thinking")}
    config = {"mcpServers": {key: entries[key] for key in servers}}
    thought = {"thought": "x", "thoughtNumber": 1, "totalThoughts": 9, "nextThoughtNeeded": True}
    async with build_aggregator(config, servers=servers) as hub:
        for root in ("file:///nowhere/one", "file:///nowhere/two"):
            async with Client(hub, mode="legacy", roots=[root]) as client:
                roots = await client.call_tool("everything:get-roots-list")
                assert re.findall("URI: (.*)", roots.content[0].text) == [root]
                for length in (1, 2):
                    result = await client.call_tool("sequential-thinking:sequentialthinking", thought)
                    assert result.structured_content["thoughtHistoryLength"] == length
