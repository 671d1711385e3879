"""A client on stdio that sends anything: what is good among it is answered, and the program stays as it was."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from fuzzing import ENVIRONMENT, SCALE, Draw, Watch, draws
from garbage import Garbage, client_messages
from support.harness import PATIENCE, ServerProcess, config, lean, running
from support.processes import complaints

pytestmark = pytest.mark.fuzz

BATCHES = 4
LINES = 100
REFUSALS = {-32700, -32600, -32601, -32602, -32020, -32021, -32022}
"""What a client that sends something malformed is told (JSON-RPC 2.0, MCP 2026-07-28); never an internal error."""
PROMPT = {"name": "hello", "arguments": [{"name": "who"}]}
RESOURCE = {"uri": "test://file", "name": "file"}


async def send_batch(server: ServerProcess, draw: Draw, *, modern: bool) -> None:
    """Malformed lines with good calls between them; each of these is answered with its own nonce."""
    garbage = Garbage(draw.random, client_messages(modern=modern))
    answers = []
    assert server.process.stdin is not None
    for number in range(LINES):
        line = garbage.line()
        server.process.stdin.write(line + b"\n")
        nonce = f"{draw.number}.{number}"
        call = server.client.begin("tools/call", {"name": "a:echo", "arguments": {"nonce": nonce}})[1]
        answers.append((line, nonce, call))
    await asyncio.wait([call for _, _, call in answers], timeout=PATIENCE)
    for line, nonce, call in answers:
        told = f"{draw}, near {line[:2000]!r}\n{server.stderr[-5000:].decode()}"
        assert call.done(), f"a good call was not answered: {told}"
        answer = call.result()
        assert "result" in answer, f"{answer}: {told}"
        assert json.loads(answer["result"]["content"][0]["text"])["arguments"] == {"nonce": nonce}, told
    for refusal in (message["error"] for message in server.client.notifications if "error" in message):
        assert refusal["code"] in REFUSALS, f"{refusal}: {draw}"
    server.client.notifications.clear()
    server.client.lines.clear()


@pytest.mark.parametrize("modern", [False, True], ids=["legacy client", "modern client"])
async def test_good_calls_between_malformed_lines_are_answered_and_the_program_does_not_grow(
    modern: bool, tmp_path: Path
) -> None:
    document = tmp_path / "mcp.json"
    document.write_text(json.dumps(config(a=lean(prompts=[PROMPT], resources=[RESOURCE]))))
    what = "modern stdio" if modern else "legacy stdio"
    command = [sys.executable, "-m", "fastmcp_aggregator", str(document)]
    async with running(*command, modern=modern, env=ENVIRONMENT) as server:
        for draw in draws(f"early {what}", 1):
            await send_batch(server, draw, modern=modern)
        watch = Watch(what, server.process.pid)
        for draw in draws(what, BATCHES):
            await send_batch(server, draw, modern=modern)
        report = watch.report(BATCHES * SCALE * LINES)
        assert not watch.has_grown, report
        assert await server.end() == 0
    assert complaints(server.stderr) == []
