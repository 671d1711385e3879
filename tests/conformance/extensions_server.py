"""The fixture for the suite's scenarios of extensions: the tools that they prescribe, and two skills.

It is made with the MCP SDK and nothing else, like the fixture for the other scenarios, whose Python it runs with:

    python extensions_server.py            on stdio
    python extensions_server.py --port 0   over streamable HTTP
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import secrets
from datetime import UTC, datetime
from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value

TASKS, SKILLS = "io.modelcontextprotocol/tasks", "io.modelcontextprotocol/skills"
SYNC_ONLY, REQUIRED = {"greet"}, {"failing_job", "test_tool_with_task"}
TOOLS = [*SYNC_ONLY, *REQUIRED, "slow_compute", "protocol_error_job", "confirm_delete", "multi_input"]
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
FORM = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}},
}
FOLDER = "inode/directory"
FILES = {
    "skill://conform/refunds/SKILL.md": "---\nname: refunds\ndescription: How to refund.\n---\n\nRead `more/why.md`.\n",
    "skill://conform/refunds/more/why.md": "Because.\n",
    "skill://conform/reports/SKILL.md": "---\nname: reports\ndescription: How to report.\nlicense: MIT\n---\n\nGo.\n",
}
FRONTMATTER = {
    "refunds": {"name": "refunds", "description": "How to refund."},
    "reports": {"name": "reports", "description": "How to report.", "license": "MIT"},
}
HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class Params(types.RequestParams):
    """Of the methods of extensions."""

    model_config = types.RequestParams.model_config | {"extra": "allow"}


def declares_tasks(ctx: Any) -> bool:
    meta = (ctx.params or {}).get("_meta") or {}
    return TASKS in (meta.get(CAPABILITIES) or {}).get("extensions", {})


def require_tasks(ctx: Any) -> None:
    if not declares_tasks(ctx):
        data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise MCPError(-32021, "Missing required client capability", data)


def text(value: str, *, error: bool = False) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": value}], "isError": error}


# Tasks.


class Task:
    """One task, which runs until it has an outcome."""

    def __init__(self, name: str, arguments: dict[str, Any], answers: dict[str, Any]) -> None:
        self.id = secrets.token_urlsafe(16)
        self.began = datetime.now(UTC).isoformat()
        self.outcome: dict[str, Any] | None = None
        self.questions: dict[str, Any] = {}
        self.answers: dict[str, Any] = dict(answers)
        self._answered = asyncio.Event()
        self._run = asyncio.create_task(self._running(name, arguments))

    def shown(self) -> dict[str, Any]:
        status = {"status": "input_required", "inputRequests": self.questions} if self.questions else {}
        about = {"createdAt": self.began, "lastUpdatedAt": datetime.now(UTC).isoformat()}
        return {
            "taskId": self.id,
            "status": "working",
            "ttlMs": 600_000,
            "pollIntervalMs": 200,
            **about,
            **status,
            **(self.outcome or {}),
        }

    def update(self, answers: dict[str, Any]) -> None:
        for key, answer in answers.items():
            if self.questions.pop(key, None):
                self.answers[key] = answer
        if not self.questions:
            self._answered.set()

    def cancel(self) -> None:
        if self.outcome is None:
            self._run.cancel()
            self.questions, self.outcome = {}, {"status": "cancelled"}

    async def _running(self, name: str, arguments: dict[str, Any]) -> None:
        if name in ("confirm_delete", "multi_input"):
            self.questions = {f"q{number}": FORM for number in range(1 if name == "confirm_delete" else 2)}
            await self._answered.wait()
        await asyncio.sleep(arguments.get("seconds", 0.2))
        if name == "protocol_error_job":
            self.outcome = {"status": "failed", "error": {"code": -32603, "message": "it broke"}}
        else:
            result = text(f"{name}: {self.answers}", error=name == "failing_job")
            self.outcome = {"status": "completed", "result": result}


TASKS_MADE: dict[str, Task] = {}


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> dict[str, Any]:
    name, arguments = params.name, params.arguments or {}
    if name == "greet":
        return text(f"Hello, {arguments.get('name')}!")
    if name in REQUIRED:
        require_tasks(ctx)
    if not declares_tasks(ctx):
        await asyncio.sleep(arguments.get("seconds", 0))
        return text(name)
    answers = (ctx.params or {}).get("inputResponses") or {}
    if name == "test_tool_with_task" and not answers:
        return {"resultType": "input_required", "inputRequests": {"user_name": FORM}, "requestState": "asked"}
    task = Task(name, arguments, answers)
    TASKS_MADE[task.id] = task
    seed = {key: value for key, value in task.shown().items() if key not in ("result", "error", "inputRequests")}
    return {"resultType": "task", **seed}


def task_of(ctx: Any, params: Params) -> Task:
    require_tasks(ctx)
    task_id = str((params.model_extra or {}).get("taskId"))
    header = None if ctx.request is None else ctx.request.headers.get(MCP_NAME_HEADER)
    if header is not None and decode_header_value(header) != task_id:
        raise MCPError(-32020, "Mcp-Name is another task")
    if task_id not in TASKS_MADE:
        raise MCPError(-32602, "Task not found")
    return TASKS_MADE[task_id]


async def get_task(ctx: Any, params: Params) -> dict[str, Any]:
    return task_of(ctx, params).shown()


async def update_task(ctx: Any, params: Params) -> dict[str, Any]:
    task_of(ctx, params).update((params.model_extra or {}).get("inputResponses") or {})
    return {}


async def cancel_task(ctx: Any, params: Params) -> dict[str, Any]:
    task_of(ctx, params).cancel()
    return {}


# Skills.


def skill(name: str) -> dict[str, Any]:
    root = f"skill://conform/{name}/"
    files = [
        {"uri": uri, "digest": f"sha256:{hashlib.sha256(data.encode()).hexdigest()}", "size": len(data.encode())}
        for uri, data in FILES.items()
        if uri.startswith(root)
    ]
    return {"uri": f"{root}SKILL.md", "frontmatter": FRONTMATTER[name], "resources": files}


async def list_skills(_: Any, params: Params) -> dict[str, Any]:
    """One on each page."""
    names = list(FRONTMATTER)
    at = int((params.model_extra or {}).get("cursor") or 0)
    more = {"nextCursor": str(at + 1)} if at + 1 < len(names) else {}
    return {"skills": [skill(names[at])], **more, **HINTS}


async def get_skill(_: Any, params: Params) -> dict[str, Any]:
    uri = (params.model_extra or {}).get("uri")
    found = next((skill(name) for name in FRONTMATTER if uri == f"skill://conform/{name}/SKILL.md"), None)
    if found is None:
        raise MCPError(-32602, f"no skill at {uri}", {"uri": uri})
    return {"skill": found, **HINTS}


async def read_directory(_: Any, params: Params) -> dict[str, Any]:
    root = f"{(params.model_extra or {}).get('uri')}/"
    below = [uri.removeprefix(root) for uri in FILES if uri.startswith(root)]
    if not below:
        raise MCPError(-32602, f"{root} is no directory")
    names = dict.fromkeys(path.partition("/")[0] for path in below)
    kinds = {name: {"mimeType": FOLDER} if name not in below else {} for name in names}
    return {"resources": [{"uri": f"{root}{name}", "name": name, **kinds[name]} for name in names]}


async def list_resources(_: Any, __: Any) -> dict[str, Any]:
    of_skills = [
        {"uri": uri, "name": uri.split("/")[-2], "description": FRONTMATTER[uri.split("/")[-2]]["description"]}
        for uri in FILES
        if uri.endswith("/SKILL.md")
    ]
    return {"resources": [{**each, "mimeType": "text/markdown"} for each in of_skills], **HINTS}


async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> dict[str, Any]:
    uri = str(params.uri)
    if uri not in FILES:
        raise MCPError(-32602, f"nothing at {uri}", {"uri": uri})
    return {"contents": [{"uri": uri, "mimeType": "text/markdown", "text": FILES[uri]}], **HINTS}


async def list_tools(_: Any, __: Any) -> dict[str, Any]:
    tools = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in TOOLS]
    return {"tools": tools, **HINTS}


def server() -> Server[Any]:
    made: Server[Any] = Server(
        "extensions",
        on_list_tools=list_tools,  # type: ignore[arg-type]
        on_call_tool=call_tool,  # type: ignore[arg-type]
        on_list_resources=list_resources,  # type: ignore[arg-type]
        on_read_resource=read_resource,  # type: ignore[arg-type]
    )
    made.extensions = {TASKS: {}, SKILLS: {"directoryRead": True}}
    handlers = {
        "tasks/get": get_task,
        "tasks/update": update_task,
        "tasks/cancel": cancel_task,
        "skills/list": list_skills,
        "skills/get": get_skill,
        "resources/directory/read": read_directory,
    }
    for method, handler in handlers.items():
        made.add_request_handler(method, Params, handler)
    return made


async def on_stdio() -> None:
    made = server()
    async with stdio_server() as (read, write):
        await made.run(read, write, made.create_initialization_options())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    port = parser.parse_args().port
    if port is None:
        asyncio.run(on_stdio())
    else:
        import uvicorn

        uvicorn.run(server().streamable_http_app(json_response=False), port=port)
