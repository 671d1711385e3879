"""A hub with servers as people have them, for the tests in a browser and for the pictures in the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.harness import LEAN_CHILD, lean

# The smallest picture there is that is not empty: four pixels.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGMQSbr/////SLX/DP////8PADHpBysnHpQrAAAAAElFTkSuQmCC"


def tool(name: str, description: str, *required: str, annotations: dict[str, Any] | None = None, **fields: Any) -> Any:
    """A tool with these fields; those in `required` have to be given."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    made: dict[str, Any] = {"name": name, "description": description, "inputSchema": schema}
    return {**made, "annotations": annotations} if annotations else made


def text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


READ_ONLY = {"readOnlyHint": True}
PATH = text("Path inside the repository.")

GIT = [
    tool("git_status", "Shows the working tree status.", "path", annotations=READ_ONLY, path=PATH),
    tool(
        "git_log",
        "Shows the commit log, newest first.\n\nDates are in ISO 8601.",
        "path",
        annotations=READ_ONLY,
        path=PATH,
        max_count={"type": "integer", "minimum": 1, "maximum": 500, "default": 10, "description": "Commits, at most."},
        order={"enum": ["date", "author", "topological"], "default": "date", "description": "How they are sorted."},
        since=text("Leave out what is older.", format="date"),
        follow_renames={"type": "boolean", "default": False},
        authors={"type": "array", "items": {"type": "string"}, "description": "Only these."},
    ),
    tool("git_commit", "Records changes to the repository.", "message", message=text("The commit message.")),
    tool("git_reset", "Unstages all changes.", "path", annotations={"destructiveHint": True}, path=PATH),
]
SEARCH = [
    tool("search", "Searches the web.", "query", annotations={"openWorldHint": True}, query=text("What to look for.")),
    tool("fetch_page", "Gets a page as Markdown.", "url", url=text("Address.", format="uri")),
    tool("picture", "Draws a picture of a page."),
]
CALENDAR = [
    tool("list_events", "Lists the events of a day.", day=text("The day.", format="date")),
    tool("create_event", "Creates an event.", "title", title=text("Its title."), guests={"type": "array"}),
]
ANSWERS: dict[str, Any] = {
    "git_log": {
        "content": [{"type": "text", "text": "a1b2c3d Route by one look-up\ne4f5a6b Keep the last good catalogue"}],
        "structuredContent": {"commits": ["a1b2c3d", "e4f5a6b"]},
    },
    "picture": {
        "content": [
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "resource_link", "uri": "https://example.org/page", "name": "the page"},
            {"type": "resource_link", "uri": "javascript:alert(1)", "name": "a trap"},
        ]
    },
    "git_reset": {"content": [{"type": "text", "text": "fatal: not a git repository"}], "isError": True},
}
GROUPS = {
    "coding": {
        "name": "Coding",
        "description": "Repositories and searches, for those who write the code.",
        "servers": ["git", "search"],
        "tools": ["git:*", "search"],
    },
    "office": {"name": "Office", "description": "Dates and mail.", "servers": ["calendar", "mail"]},
}


def server(definitions: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """An `mcpServers` entry for a server with these tools."""
    entry = lean(definitions=definitions, answers=ANSWERS, **options)
    return {**entry, "args": ["-S", str(LEAN_CHILD.with_name("catalogue_child.py")), *entry["args"][2:]]}


def servers(broken: Path) -> dict[str, Any]:
    """The servers by key; `search` does not start while there is a file `broken`."""
    resources = [{"uri": "git://head", "name": "HEAD"}]
    prompts = [{"name": "review", "description": "Review the changes."}]
    return {
        "git": server(GIT, era="modern", resources=resources, prompts=prompts),
        "search": server(SEARCH, exit_if_file=str(broken)),
        "calendar": server(CALENDAR, era="modern"),
        "mail": {"command": "mail-mcp-server-that-is-not-installed"},
    }
