"""The table of relayed methods: who sends each, in which eras, what it requires, and whom it is for. Pure.

Every module that treats some methods in a way of their own takes them from here. Not relayed, since each side has its
own: handshakes, `ping`, `notifications/cancelled` and the streams of `subscriptions/listen`. To which extension the
methods of extensions belong is in `extensions/table.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

Side = Literal["client", "server"]
Era = Literal["legacy", "modern"]

BOTH: frozenset[Era] = frozenset({"legacy", "modern"})
LEGACY: frozenset[Era] = frozenset({"legacy"})
MODERN: frozenset[Era] = frozenset({"modern"})


class Recipient(Enum):
    """The addressee of a message."""

    CATALOGUE = "nobody: it is answered from the children's catalogues"
    CHILD = "the child that its name or address leads to"
    CHILDREN = "one child after the other: the page of a list"
    TASK = "the child that has made the task"
    REQUESTER = "the caller whose request has its progress token"
    CALLER = "the caller on whose response stream it came, or else the only one with requests in flight"
    SUBSCRIBERS = "the clients that have subscribed to its resource"
    LISTENERS = "the clients that listen for its task"
    EVERYONE = "all clients, or all children"


def _nothing_more(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Method:
    """One row. A name that begins with `notifications/` is that of a notification, any other that of a request."""

    name: str
    sender: Side
    recipient: Recipient
    capability: str = ""
    """The capability that it requires; empty: none."""
    declared_by: Side = "server"
    """The side that declares the capability."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """Keys inside the capability that declare this method."""
    required_parts: Callable[[Mapping[str, Any]], Mapping[str, Any]] = _nothing_more
    """The parts of the capability that a request requires, by its parameters."""
    eras: frozenset[Era] = BOTH
    """Eras in which it is a message of its own. Modern children send requests as parts of an `InputRequiredResult`."""
    deadline: Literal["call", "read", "prompt"] = "call"
    """The deadline of a request to a child."""
    named_by: str = ""
    """The parameter that is repeated in the header `Mcp-Name` over HTTP, where the SDK does not know of it."""
    is_cacheable: bool = False
    """True if its result says how long it may be cached (2026-07-28)."""

    @property
    def is_request(self) -> bool:
        """True if it has a response."""
        return not self.name.startswith("notifications/")


def _of_sampling(params: Mapping[str, Any]) -> Mapping[str, Any]:
    has_tools = params.get("tools") is not None or params.get("toolChoice") is not None
    return {"tools": {}} if has_tools else {}


def _of_elicitation(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"url" if params.get("mode") == "url" else "form": {}}


# Requests of clients.
TOOLS_LIST = Method("tools/list", "client", Recipient.CATALOGUE, "tools", is_cacheable=True)
TOOLS_CALL = Method("tools/call", "client", Recipient.CHILD, "tools")
RESOURCES_LIST = Method("resources/list", "client", Recipient.CATALOGUE, "resources", is_cacheable=True)
TEMPLATES_LIST = Method("resources/templates/list", "client", Recipient.CATALOGUE, "resources", is_cacheable=True)
RESOURCES_READ = Method("resources/read", "client", Recipient.CHILD, "resources", deadline="read", is_cacheable=True)
SUBSCRIBE = Method(
    "resources/subscribe", "client", Recipient.CHILD, "resources", parts={"subscribe": True}, eras=LEGACY
)
UNSUBSCRIBE = Method(
    "resources/unsubscribe", "client", Recipient.CHILD, "resources", parts={"subscribe": True}, eras=LEGACY
)
PROMPTS_LIST = Method("prompts/list", "client", Recipient.CATALOGUE, "prompts", is_cacheable=True)
PROMPTS_GET = Method("prompts/get", "client", Recipient.CHILD, "prompts", deadline="prompt")
COMPLETE = Method("completion/complete", "client", Recipient.CHILD, "completions")
SET_LEVEL = Method("logging/setLevel", "client", Recipient.EVERYONE, "logging", eras=LEGACY)

# Requests of clients, of extensions.
TASKS_GET = Method("tasks/get", "client", Recipient.TASK, eras=MODERN, named_by="taskId")
TASKS_UPDATE = Method("tasks/update", "client", Recipient.TASK, eras=MODERN, named_by="taskId")
TASKS_CANCEL = Method("tasks/cancel", "client", Recipient.TASK, eras=MODERN, named_by="taskId")
SKILLS_LIST = Method("skills/list", "client", Recipient.CHILDREN, eras=MODERN, is_cacheable=True)
SKILLS_GET = Method("skills/get", "client", Recipient.CHILD, eras=MODERN, deadline="read", is_cacheable=True)
DIRECTORY_READ = Method("resources/directory/read", "client", Recipient.CHILD, eras=MODERN, deadline="read")

# Notifications of clients.
ROOTS_CHANGED = Method(
    "notifications/roots/list_changed",
    "client",
    Recipient.EVERYONE,
    "roots",
    declared_by="client",
    parts={"listChanged": True},
    eras=LEGACY,
)

# Requests of servers.
CREATE_MESSAGE = Method(
    "sampling/createMessage",
    "server",
    Recipient.CALLER,
    "sampling",
    declared_by="client",
    parts={"context": {}, "tools": {}},
    required_parts=_of_sampling,
    eras=LEGACY,
)
ELICIT = Method(
    "elicitation/create",
    "server",
    Recipient.CALLER,
    "elicitation",
    declared_by="client",
    parts={"form": {}, "url": {}},
    required_parts=_of_elicitation,
    eras=LEGACY,
)
ROOTS_LIST = Method("roots/list", "server", Recipient.CALLER, "roots", declared_by="client", eras=LEGACY)

# Notifications of servers.
PROGRESS = Method("notifications/progress", "server", Recipient.REQUESTER)
LOG_MESSAGE = Method("notifications/message", "server", Recipient.CALLER, "logging")
ELICITATION_COMPLETE = Method(
    "notifications/elicitation/complete", "server", Recipient.CALLER, "elicitation", declared_by="client", eras=LEGACY
)
RESOURCE_UPDATED = Method(
    "notifications/resources/updated", "server", Recipient.SUBSCRIBERS, "resources", parts={"subscribe": True}
)
TOOLS_CHANGED = Method(
    "notifications/tools/list_changed", "server", Recipient.EVERYONE, "tools", parts={"listChanged": True}
)
RESOURCES_CHANGED = Method(
    "notifications/resources/list_changed", "server", Recipient.EVERYONE, "resources", parts={"listChanged": True}
)
PROMPTS_CHANGED = Method(
    "notifications/prompts/list_changed", "server", Recipient.EVERYONE, "prompts", parts={"listChanged": True}
)
TASK_CHANGED = Method("notifications/tasks", "server", Recipient.LISTENERS, eras=MODERN)

# Of each side's own.
LISTEN = "subscriptions/listen"
CANCELLED = "notifications/cancelled"

METHODS: Mapping[str, Method] = {row.name: row for row in list(globals().values()) if isinstance(row, Method)}

CLIENT_REQUESTS = {name: row for name, row in METHODS.items() if row.sender == "client" and row.is_request}
SERVER_REQUESTS = {name: row for name, row in METHODS.items() if row.sender == "server" and row.is_request}
SERVER_NOTIFICATIONS = {name: row for name, row in METHODS.items() if row.sender == "server" and not row.is_request}
CALLER_NOTIFICATIONS: Mapping[Era, frozenset[str]] = {
    era: frozenset(
        name
        for name, row in SERVER_NOTIFICATIONS.items()
        if row.recipient in (Recipient.REQUESTER, Recipient.CALLER) and era in row.eras
    )
    for era in BOTH
}
"""Notifications that a caller of each era gets while its request runs."""
LIST_CHANGED = {row.capability: name for name, row in SERVER_NOTIFICATIONS.items() if "listChanged" in row.parts}


def capabilities_of(side: Side) -> dict[str, dict[str, Any]]:
    """Everything that a server or client could declare of what is relayed."""
    together: dict[str, dict[str, Any]] = {}
    for row in METHODS.values():
        if row.capability and row.declared_by == side:
            together.setdefault(row.capability, {}).update(row.parts)
    return together
