"""FastMCP's own client in front of real servers, in both eras: several sessions of one aggregator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest
from fastmcp import Client
from real_answers import public_component
from real_fastmcp import ASKABLE, ERAS, aggregated, direct_client
from real_fronts import Entries
from real_servers import Place, requires_servers

pytestmark = [pytest.mark.real, requires_servers]

each_era = pytest.mark.parametrize("mode", ERAS)


def graph_of(result: Any) -> list[str]:
    """The names of the entities in a knowledge graph."""
    return [entity["name"] for entity in result.structured_content["entities"]]


def entity(name: str) -> dict[str, Any]:
    return {"entities": [{"name": name, "entityType": "person", "observations": []}]}


LISTS: dict[str, Callable[[Client[Any]], Awaitable[list[Any]]]] = {
    "name": Client.list_tools,
    "uri": Client.list_resources,
    "uriTemplate": Client.list_resource_templates,
    "prompt name": Client.list_prompts,
}


def as_json(listed: list[Any]) -> list[dict[str, Any]]:
    return [component.model_dump(mode="json", by_alias=True, exclude_unset=True) for component in listed]


async def test_the_client_lists_in_both_eras_what_it_lists_of_each_server(entries: Entries) -> None:
    listed = []
    async with aggregated(entries) as hub:
        for mode in ERAS:
            async with Client(hub, mode=mode, **ASKABLE) as client:
                listed.append({kind: as_json(await list_kind(client)) for kind, list_kind in LISTS.items()})
    expected: dict[str, list[dict[str, Any]]] = {kind: [] for kind in LISTS}
    for key, entry in entries.items():
        async with direct_client(entry, **ASKABLE) as direct:
            capabilities = direct.server_capabilities
            for kind, list_kind in LISTS.items():
                offered = capabilities.tools if kind == "name" else capabilities.resources
                if kind == "prompt name":
                    offered = capabilities.prompts
                if offered is not None:
                    id_field = kind.removeprefix("prompt ")
                    expected[kind] += [
                        public_component(key, id_field, item) for item in as_json(await list_kind(direct))
                    ]
    assert listed == [expected, expected]


async def test_every_server_answers_the_client_in_both_eras_as_it_answers_it_directly(
    entries: Entries, place: Place
) -> None:
    repository = {"repo_path": str(place.repository)}
    noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("everything", "get-structured-content", {"location": "New York"}),
        ("time", "convert_time", noon),
        ("git", "git_log", repository),
        ("filesystem", "directory_tree", {"path": str(place.files)}),
        ("memory", "read_graph", {}),
    ]
    answers = []
    async with aggregated(entries) as hub:
        for mode in ERAS:
            async with Client(hub, mode=mode, **ASKABLE) as client:
                asking = (client.call_tool(f"{key}:{tool}", arguments) for key, tool, arguments in calls)
                answers.append(await asyncio.gather(*asking))
    for number, (key, tool, arguments) in enumerate(calls):
        async with direct_client(entries[key]) as direct:
            expected = await direct.call_tool(tool, arguments)
        assert [answer[number].content for answer in answers] == [expected.content] * 2
        assert [answer[number].structured_content for answer in answers] == [expected.structured_content] * 2


@each_era
async def test_the_client_gets_prompts_and_reads_static_and_templated_resources(mode: str, entries: Entries) -> None:
    async with (
        aggregated(entries, "everything") as hub,
        Client(hub, mode=mode, **ASKABLE) as client,
        direct_client(entries["everything"]) as direct,
    ):
        prompt = await client.get_prompt("everything:args-prompt", {"city": "Bern"})
        assert prompt.messages == (await direct.get_prompt("args-prompt", {"city": "Bern"})).messages
        (part,) = await client.read_resource("demo://everything/resource/static/document/startup.md")
        (expected,) = await direct.read_resource("demo://resource/static/document/startup.md")
        assert part.text == expected.text
        assert part.mime_type == expected.mime_type
        (part,) = await client.read_resource("demo://everything/resource/dynamic/text/42")
        assert part.text.startswith("Resource 42: ")


@each_era
async def test_what_one_session_has_stored_the_next_call_and_another_session_find(mode: str, entries: Entries) -> None:
    async with aggregated(entries, "memory") as hub:
        async with Client(hub, mode=mode, **ASKABLE) as first:
            await first.call_tool("memory:create_entities", entity("Alice"))
            assert graph_of(await first.call_tool("memory:read_graph")) == ["Alice"]
            async with Client(hub, mode=mode, **ASKABLE) as second:
                await second.call_tool("memory:create_entities", entity("Bob"))
            assert graph_of(await first.call_tool("memory:read_graph")) == ["Alice", "Bob"]
        async with Client(hub, mode=mode, **ASKABLE) as third:
            assert graph_of(await third.call_tool("memory:read_graph")) == ["Alice", "Bob"]


@each_era
async def test_state_that_a_server_keeps_in_its_process_survives_between_sessions(mode: str, entries: Entries) -> None:
    thought = {"thought": "x", "thoughtNumber": 1, "totalThoughts": 9, "nextThoughtNeeded": True}
    async with aggregated(entries, "sequential-thinking") as hub:
        for length in (1, 2, 3):
            async with Client(hub, mode=mode, **ASKABLE) as client:
                result = await client.call_tool("sequential-thinking:sequentialthinking", thought)
            assert result.structured_content["thoughtHistoryLength"] == length


@each_era
async def test_two_entries_of_one_server_with_different_variables_stay_apart(mode: str, entries: Entries) -> None:
    async with aggregated(entries, "memory", "memory-other") as hub, Client(hub, mode=mode, **ASKABLE) as client:
        await client.call_tool("memory:create_entities", entity("Alice"))
        await client.call_tool("memory-other:create_entities", entity("Bob"))
        assert graph_of(await client.call_tool("memory:read_graph")) == ["Alice"]
        assert graph_of(await client.call_tool("memory-other:read_graph")) == ["Bob"]
        for key, name in (("memory", "Alice"), ("memory-other", "Bob")):
            (part,) = await client.read_resource(f"memory://{key}/knowledge-graph")
            assert [item["name"] for item in json.loads(part.text)["entities"]] == [name]


@each_era
async def test_two_entries_of_one_server_with_different_arguments_stay_apart(
    mode: str, entries: Entries, place: Place
) -> None:
    async with (
        aggregated(entries, "filesystem", "filesystem-other") as hub,
        Client(hub, mode=mode, **ASKABLE) as client,
    ):

        async def read(key: str, folder: Any) -> Any:
            arguments = {"path": str(folder / "hello.txt")}
            return await client.call_tool(f"{key}:read_text_file", arguments, raise_on_error=False)

        assert "wörld" in (await read("filesystem", place.files)).content[0].text
        assert "other folder" in (await read("filesystem-other", place.other_files)).content[0].text
        for key, folder in (("filesystem", place.other_files), ("filesystem-other", place.files)):
            refusal = await read(key, folder)
            assert refusal.is_error
            assert "Access denied" in refusal.content[0].text


@each_era
async def test_progress_of_a_long_call_arrives_at_its_caller_alone_and_in_order(mode: str, entries: Entries) -> None:
    async with (
        aggregated(entries, "everything") as hub,
        Client(hub, mode=mode, **ASKABLE) as first,
        Client(hub, mode=mode, **ASKABLE) as second,
    ):

        async def run(client: Client[Any], steps: int) -> list[tuple[float, float | None]]:
            seen: list[tuple[float, float | None]] = []

            async def note(progress: float, total: float | None, message: str | None) -> None:
                seen.append((progress, total))

            arguments = {"duration": 0.2, "steps": steps}
            name = "everything:trigger-long-running-operation"
            await client.call_tool(name, arguments, progress_handler=note)
            return seen

        await first.call_tool("everything:get-roots-list")  # or else it asks for them at any moment
        of_first, of_second = await asyncio.gather(run(first, 3), run(second, 5))
    assert of_first == [(step, 3) for step in (1, 2, 3)]
    assert of_second == [(step, 5) for step in (1, 2, 3, 4, 5)]


async def test_health_names_the_same_running_process_of_each_server_over_many_sessions_and_calls(
    entries: Entries,
) -> None:
    async with aggregated(entries) as hub:
        pids = {key: status.pid for key, status in hub.health().items()}
        processes = [psutil.Process(pid) for pid in pids.values()]
        assert list(pids) == list(entries)
        assert len(set(pids.values())) == len(entries)
        for mode in ("legacy", "auto") * 3:
            async with Client(hub, mode=mode, **ASKABLE) as client:
                await client.list_tools()
                for key in ("filesystem", "filesystem-other"):
                    await client.call_tool(f"{key}:list_allowed_directories")
                await client.call_tool("everything:echo", {"message": mode})
        assert {key: status.pid for key, status in hub.health().items()} == pids
        assert all(status.restarts == 0 for status in hub.health().values())
    assert [process for process in processes if process.is_running()] == []
