"""An MCP server written by hand, without any SDK: it starts in milliseconds and does exactly what it is told.

    python lean_child.py '{"era": "modern", "tools": 10}'

The options, all with defaults, are the keyword arguments of `Child`. It keeps the protocol and nothing else: requests
are handled one at a time in the order in which they come.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASKS = "io.modelcontextprotocol/tasks"
EMPTY_SCHEMA = {"type": "object", "properties": {}}
BASE_TOOLS = """
    echo fail error progress hold wait release leave add_tool remove_tool environment pid params raw flood
    spam big endless junk deaf twice wrong_id mute
"""


def wait_for(file: str) -> None:
    while not os.path.exists(file):
        time.sleep(0.002)


class Child:
    def __init__(
        self,
        *,
        era: str = "legacy",
        name: str = "lean",
        tools: int = 0,
        tool_names: list[str] | None = None,
        tool_extra: dict[str, Any] | None = None,
        resources: list[dict[str, Any]] | None = None,
        templates: list[dict[str, Any]] | None = None,
        prompts: list[dict[str, Any]] | None = None,
        instructions: str | None = None,
        page_size: int | None = None,
        capabilities: dict[str, Any] | None = None,
        record: str | None = None,
        stderr: list[str] | None = None,
        stdout: list[str] | None = None,
        exit_at_start: int | None = None,
        exit_if_file: str | None = None,
        silent: bool = False,
        wait_for_file: str | None = None,
        ignore_eof: bool = False,
        grandchild: str | None = None,
        results: dict[str, Any] | None = None,
        asks_for_roots: bool = False,
        tools_if: dict[str, str] | None = None,
    ) -> None:
        self.era = era
        self.name = name
        names = [*BASE_TOOLS.split(), *(tool_names or []), *(f"tool_{i}" for i in range(tools))]
        self.tools = [self.tool(n) for n in names]
        self.tools[0].update(tool_extra or {})
        self.lists = {
            "tools": self.tools,
            "resources": resources or [],
            "resourceTemplates": templates or [],
            "prompts": prompts or [],
        }
        self.instructions = instructions
        self.page_size = page_size
        self.capabilities = capabilities
        self.silent = silent
        self.ignore_eof = ignore_eof
        self.results = results or {}
        self.asks_for_roots = asks_for_roots
        self.tools_if = tools_if or {}
        """A tool for each capability, listed to clients that have declared it."""
        self.roots: Any = None
        if asks_for_roots:
            self.tools.append(self.tool("roots"))
        self.held: list[tuple[Any, Any]] = []
        self.streams: list[Any] = []
        self.client: dict[str, Any] = {}
        self.tasks: dict[str, dict[str, Any]] = {}
        self.task_streams: dict[Any, list[str]] = {}
        self.wait_for_file = wait_for_file
        if record:
            with open(record, "a") as file:
                file.write(f"{self.pid}\n")
        for line in stderr or []:
            self.complain(line)
        for line in stdout or []:
            self.write_bytes(line.encode() + b"\n")
        if grandchild:
            self.start_grandchild(grandchild)
        if exit_if_file and os.path.exists(exit_if_file):
            self.leave(9)
        if exit_at_start is not None:
            self.leave(exit_at_start)

    @staticmethod
    def start_grandchild(record: str) -> None:
        import subprocess

        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(record, "a") as file:
            file.write(f"{process.pid}\n")

    @staticmethod
    def tool(name: str) -> dict[str, Any]:
        return {"name": name, "description": f"The tool {name}.", "inputSchema": EMPTY_SCHEMA}

    # What a child in memory does otherwise: see `support.memory`.

    pid = os.getpid()

    def write_bytes(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def complain(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def leave(self, code: int) -> None:
        sys.stdout.buffer.flush()
        os._exit(code)

    # Wire.

    def serve(self) -> None:
        if self.wait_for_file:
            wait_for(self.wait_for_file)
        for line in sys.stdin.buffer:
            self.take(json.loads(line))
        while self.ignore_eof:
            import signal

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pause()

    def take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self.answered(message)
        elif "id" not in message:
            self.told(message["method"], message.get("params") or {})
        else:
            self.asked(message)

    def asked(self, message: dict[str, Any]) -> None:
        try:
            result = self.answer(message["id"], message["method"], message.get("params") or {})
        except LookupError as error:
            self.send({"id": message["id"], "error": error.args[0]})
            return
        if result is not None:
            self.reply(message["id"], result)

    def answered(self, message: dict[str, Any]) -> None:
        """A response: it asks nothing but for roots, unless it was told to write what looks like a question."""
        if message["id"] == "roots":
            self.roots = message.get("result", message.get("error"))

    def told(self, method: str, params: dict[str, Any]) -> None:
        declared = self.client.get("capabilities", {})
        if method == "notifications/initialized":
            self.tools += [self.tool(name) for capability, name in self.tools_if.items() if capability in declared]
        if self.asks_for_roots and "roots" in declared and method.endswith(("/initialized", "/roots/list_changed")):
            self.send({"id": "roots", "method": "roots/list"})
        if method == "notifications/cancelled":
            self.cancel(params["requestId"])

    def cancel(self, request_id: Any) -> None:
        self.held = [held for held in self.held if held[0] != request_id]
        self.task_streams.pop(request_id, None)
        self.complain("cancelled")

    def send(self, message: dict[str, Any]) -> None:
        self.write_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def reply(self, request_id: Any, result: dict[str, Any]) -> None:
        if self.era == "modern":
            result = {"resultType": "complete", **result}
        self.send({"id": request_id, "result": result})

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"method": method, **({"params": params} if params is not None else {})})

    # Requests.

    def answer(self, request_id: Any, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if self.silent:
            return None
        if method in self.results:
            return dict(self.results[method])
        handler = {
            "initialize": self.initialize,
            "server/discover": self.discover,
            "ping": lambda _: {},
            "tools/list": lambda p: self.page("tools", p),
            "resources/list": lambda p: self.page("resources", p),
            "resources/templates/list": lambda p: self.page("resourceTemplates", p),
            "prompts/list": lambda p: self.page("prompts", p),
            "resources/read": self.read,
            "prompts/get": self.prompt,
        }.get(method)
        if handler is not None:
            return handler(params)
        if method == "tools/call":
            return self.call(request_id, params)
        if method.startswith("tasks/") and self.era == "modern":
            return self.of_task(method, params)
        if method == "subscriptions/listen" and self.era == "modern":
            self.streams.append(request_id)
            if task_ids := params["notifications"].get("taskIds"):
                self.task_streams[request_id] = task_ids
            self.notify(
                "notifications/subscriptions/acknowledged",
                {"notifications": params["notifications"], "_meta": {SUBSCRIPTION_ID: request_id}},
            )
            return None
        raise LookupError({"code": -32601, "message": "Method not found"})

    def declared(self) -> dict[str, Any]:
        if self.capabilities is not None:
            return self.capabilities
        declared: dict[str, Any] = {"tools": {"listChanged": True}}
        if self.lists["resources"] or self.lists["resourceTemplates"]:
            declared["resources"] = {"listChanged": True}
        if self.lists["prompts"]:
            declared["prompts"] = {"listChanged": True}
        return declared

    def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.era != "legacy":
            raise LookupError({"code": -32022, "message": "no handshake", "data": {"supported": ["2026-07-28"]}})
        self.client = params
        return self.introduction() | {
            "protocolVersion": params["protocolVersion"],
            "serverInfo": {"name": self.name, "version": "1"},
        }

    def discover(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.era != "modern":
            raise LookupError({"code": -32601, "message": "Method not found"})
        return self.introduction() | {"supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private"}

    def introduction(self) -> dict[str, Any]:
        return {
            "capabilities": self.declared(),
            **({"instructions": self.instructions} if self.instructions else {}),
        }

    def page(self, key: str, params: dict[str, Any]) -> dict[str, Any]:
        items = self.lists[key]
        hints = {"ttlMs": 0, "cacheScope": "private"} if self.era == "modern" else {}
        if self.page_size is None:
            return {key: items, **hints}
        start = int(params.get("cursor") or 0)
        end = start + self.page_size
        more = {"nextCursor": str(end)} if end < len(items) else {}
        return {key: items[start:end], **more, **hints}

    def read(self, params: dict[str, Any]) -> dict[str, Any]:
        hints = {"ttlMs": 5, "cacheScope": "public"} if self.era == "modern" else {}
        return {"contents": [{"uri": params["uri"], "text": f"{self.name} reads {params['uri']}"}], **hints}

    def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(params.get("arguments") or {}, sort_keys=True)
        return {
            "description": params["name"],
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
        }

    # Tools.

    def call(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any] | None:
        arguments = params.get("arguments") or {}
        known = {tool["name"] for tool in self.tools}
        if params["name"] not in known:
            raise LookupError({"code": -32602, "message": f"no tool {params['name']}", "data": {"from": self.name}})
        special = getattr(self, f"call_{params['name']}", None)
        if special is not None:
            return special(request_id, arguments, params)
        return self.text({"tool": params["name"], "arguments": arguments, "server": self.name})

    @staticmethod
    def text(value: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": json.dumps(value, sort_keys=True)}]}

    def call_fail(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": "it failed"}], "isError": True}

    def call_error(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        raise LookupError(arguments or {"code": -32099, "message": "told to", "data": {"why": "test"}})

    def call_progress(self, _: Any, arguments: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        token = (params.get("_meta") or {}).get("progressToken")
        for step in range(arguments.get("steps", 3)):
            if "pause" in arguments:
                import time

                time.sleep(arguments["pause"])
            self.notify(
                "notifications/progress",
                {"progressToken": token, "progress": step + 1, "total": 3, "message": f"step {step + 1}"},
            )
        return self.text({"token": token})

    def call_hold(self, request_id: Any, arguments: dict[str, Any], _: Any) -> None:
        self.held.append((request_id, arguments))
        self.complain("holding")

    def call_wait(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        self.complain("waiting")
        wait_for(arguments["file"])
        return self.text({"waited": True})

    def call_release(self, _: Any, __: Any, ___: Any) -> dict[str, Any]:
        held, self.held = self.held, []
        for request_id, arguments in held:
            self.reply(request_id, self.text({"held": arguments, "server": self.name}))
        return self.text({"released": len(held)})

    def call_leave(self, _: Any, arguments: dict[str, Any], __: Any) -> None:
        self.complain("leaving")
        self.leave(arguments.get("code", 1))

    def call_add_tool(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        name = arguments.get("name", "newcomer")
        self.tools.append(self.tool(name))
        self.lists_changed()
        return self.text({"added": name})

    def call_remove_tool(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        self.tools[:] = [tool for tool in self.tools if tool["name"] != arguments["name"]]
        self.lists_changed()
        return self.text({"removed": arguments["name"]})

    def lists_changed(self) -> None:
        if self.era == "legacy":
            self.notify("notifications/tools/list_changed")
        for request_id in self.streams:
            self.notify("notifications/tools/list_changed", {"_meta": {SUBSCRIPTION_ID: request_id}})

    def call_environment(self, _: Any, __: Any, ___: Any) -> dict[str, Any]:
        return self.text(dict(os.environ))

    def call_pid(self, _: Any, __: Any, ___: Any) -> dict[str, Any]:
        return self.text({"pid": self.pid})

    def call_roots(self, _: Any, __: Any, ___: Any) -> dict[str, Any]:
        return self.text(self.roots)

    def call_params(self, _: Any, __: Any, params: dict[str, Any]) -> dict[str, Any]:
        return self.text(params)

    def call_task(self, _: Any, arguments: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """A task, if the client takes one (SEP-2663); the tool is to be among `tool_names`.

        It is done after so many `polls`, once the questions of `ask` are answered, with `result` or `error`; with
        `required` there is nothing without a task.
        """
        if self.takes_tasks(params):
            task_id = f"task-{self.pid}-{len(self.tasks) + 1}"
            self.tasks[task_id] = {"polls": 1, "ttlMs": 60000, **arguments, "answers": {}, "status": "working"}
            return {"resultType": "task", **self.task(task_id)}
        if arguments.get("required"):
            raise LookupError(self.missing_tasks())
        return self.text("done")

    def takes_tasks(self, params: dict[str, Any]) -> bool:
        declared = (params.get("_meta") or {}).get(CLIENT_CAPABILITIES) or self.client.get("capabilities") or {}
        return TASKS in declared.get("extensions", {})

    @staticmethod
    def missing_tasks() -> dict[str, Any]:
        data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        return {"code": -32021, "message": "Missing required client capability", "data": data}

    def of_task(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not self.takes_tasks(params):
            raise LookupError(self.missing_tasks())
        task_id = params["taskId"]
        if task_id not in self.tasks:
            raise LookupError({"code": -32602, "message": f"Task {task_id} not found"})
        task = self.tasks[task_id]
        if method == "tasks/update":
            task["answers"].update(params["inputResponses"])
            return {}
        if method == "tasks/cancel":
            task["status"] = "cancelled"
            self.complain(f"cancelled {task_id}")
            return {}
        self.advance(task)
        return self.task(task_id)

    @staticmethod
    def advance(task: dict[str, Any]) -> None:
        if task["status"] not in ("working", "input_required"):
            return
        if task.get("ask", {}).keys() - task["answers"].keys():
            task["status"] = "input_required"
        elif task["polls"] > 0:
            task["status"] = "working"
            task["polls"] -= 1
        else:
            task["status"] = "failed" if "error" in task else "completed"

    def task(self, task_id: str) -> dict[str, Any]:
        task = self.tasks[task_id]
        shown = {"taskId": task_id, "status": task["status"], "ttlMs": task["ttlMs"], "pollIntervalMs": 100}
        shown |= {"createdAt": "2026-11-22T10:00:00Z", "lastUpdatedAt": "2026-11-22T10:00:00Z"}
        if "statusMessage" in task:
            shown["statusMessage"] = task["statusMessage"]
        if task["status"] == "input_required":
            shown["inputRequests"] = {key: v for key, v in task["ask"].items() if key not in task["answers"]}
        if task["status"] == "completed":
            shown["result"] = task.get("result") or self.text({"done": task_id, "answers": task["answers"]})
        if task["status"] == "failed":
            shown["error"] = task["error"]
        return shown

    def call_finish(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        """Finish the tasks that somebody listens for, and say so."""
        for request_id, task_ids in self.task_streams.items():
            for task_id in task_ids:
                self.tasks[task_id]["status"] = "completed"
                self.notify("notifications/tasks", {**self.task(task_id), "_meta": {SUBSCRIPTION_ID: request_id}})
        return self.text({"finished": sum(map(len, self.task_streams.values()))})

    def call_raw(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        return arguments

    def call_spam(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "spam"}}
        self.write_bytes((json.dumps(message).encode() + b"\n") * arguments["notifications"])
        if "add_tool" in arguments:
            self.call_add_tool(None, {"name": arguments["add_tool"]}, None)
        return self.text({"sent": arguments["notifications"]})

    def call_big(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        return self.text("x" * arguments["size"])

    def call_endless(self, _: Any, arguments: dict[str, Any], __: Any) -> None:
        while True:
            sys.stdout.buffer.write(b"x" * 65536)

    def call_junk(self, request_id: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any] | None:
        line = bytes.fromhex(arguments.get("hex", "6a756e6b")).replace(b"424242", str(request_id).encode())
        for _i in range(arguments["lines"]):
            self.write_bytes(line + b"\n")
        return self.text({"written": arguments["lines"]}) if arguments.get("answer", True) else None

    def call_deaf(self, _: Any, __: Any, ___: Any) -> None:
        import signal

        signal.pause()

    def call_twice(self, request_id: Any, _: Any, __: Any) -> dict[str, Any]:
        self.reply(request_id, self.text("first"))
        return self.text("second")

    def call_wrong_id(self, _: Any, __: Any, ___: Any) -> None:
        self.reply(999999, self.text("lost"))

    def call_mute(self, _: Any, __: Any, ___: Any) -> None:
        os.close(1)

    def call_flood(self, _: Any, arguments: dict[str, Any], __: Any) -> dict[str, Any]:
        sys.stderr.write(("x" * arguments.get("length", 100) + "\n") * arguments["lines"])
        return self.text({"flooded": arguments["lines"]})


if __name__ == "__main__":
    Child(**(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})).serve()
