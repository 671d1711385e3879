"""The dashboard's data for one viewer: plain values, limited to what the viewer's groups have.

A viewer with the role `observe` sees everything: all servers, groups and callers. Another sees the groups that are
theirs, the servers in these with what the groups have of them, and their own calls. How busy a server is, and as which
process it runs, tells of others, so they do not see that. Without authentication everybody has all roles. Errors are
told in full to those on this machine alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fastmcp_aggregator.access.principal import Principal
from fastmcp_aggregator.children.child import Child
from fastmcp_aggregator.groups import DEFAULT_GROUP, Group
from fastmcp_aggregator.policies.recent import RecentCall, RecentCalls
from fastmcp_aggregator.status.server_status import SEEN_BY_EVERYBODY, ServerStatus
from fastmcp_aggregator.web.dashboard.contents import Contents, Part

CALLS_SHOWN = 100

_ALL_GROUPS_ONLY = (
    "pid",
    "in_flight",
    "waiting",
    "unanswered",
    "ignored_lines",
    "dropped_notifications",
    "dropped_stderr_lines",
    "isolation_reason",
)
_RUNNING_ON = ("since", "retry_in")
"""Fields that change with time alone."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the view, for one viewer."""

    viewer: Principal
    children: Mapping[str, Child]
    groups: Mapping[str, tuple[Group, Contents]]
    """Groups that the viewer may see."""
    calls: RecentCalls
    path: str
    """The path of the MCP endpoint."""
    withdrawn: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Tools that are out of service, by server key."""
    is_local: bool = False
    notices: Mapping[str, Any] = field(default_factory=dict)
    """Notices for observers: `refused_files` and `expiring_keys`."""

    @property
    def sees_all(self) -> bool:
        return self.viewer.may_observe


def view_of(sources: Sources) -> dict[str, Any]:
    """All that is shown. Times are in seconds; `now` and a call's `ended` are on one clock of the aggregator's own."""
    shown = [key for key in sources.children if _may_know(key, sources)]
    return {
        "now": sources.calls.now,
        "servers": [_server(key, sources) for key in shown],
        "groups": [_group(group, contents, sources) for group, contents in sources.groups.values()],
        **sources.notices,
        "calls": [_call(call) for call in sources.calls.latest(CALLS_SHOWN, lambda call: _may_see(call, sources))],
    }


def parts_of(sources: Sources) -> dict[str, dict[str, Part]]:
    """The parts of the view, by group and server key."""
    return {group.id: {key: contents.of(key) for key in group.servers} for group, contents in sources.groups.values()}


def what_stays(view: Mapping[str, Any]) -> dict[str, Any]:
    """The view without what changes with the time alone; two of them differ if there is something new to show."""
    servers = [{name: value for name, value in s.items() if name not in _RUNNING_ON} for s in view["servers"]]
    refused = {what: file.get("problem") for what, file in view.get("refused_files", {}).items()}
    return {**view, "now": None, "servers": servers, "refused_files": refused}


def _may_know(key: str, sources: Sources) -> bool:
    return sources.sees_all or any(key in group.servers for group, _ in sources.groups.values())


def _may_see(call: RecentCall, sources: Sources) -> bool:
    viewer = sources.viewer
    return sources.sees_all or (call.principal.name == viewer.name and viewer.may_use(call.group))


def _server(key: str, sources: Sources) -> dict[str, Any]:
    child = sources.children[key]
    status = child.status()
    fields = (*SEEN_BY_EVERYBODY, *_ALL_GROUPS_ONLY) if sources.sees_all else SEEN_BY_EVERYBODY
    return {
        "key": key,
        "last_error": _error(child, sources),
        "tools": status.tools if sources.sees_all else len(_tools_of(key, sources)),
        **{name: getattr(status, name) for name in fields},
        **_account(child, status, sources),
        **({"withdrawn": sorted(sources.withdrawn.get(key, ()))} if sources.viewer.may_operate else {}),
        # Resources and prompts of a server belong to every group that has the server.
        "resources": status.resources + status.templates,
        "prompts": status.prompts,
    }


def _account(child: Child, status: ServerStatus, sources: Sources) -> dict[str, Any]:
    """The account that a server is called with, where it is a login's; and what an operator is to do about it."""
    oauth = child.options.endpoint.access.oauth
    if oauth is None:
        return {}
    login = {"login_needed": status.login_needed} if sources.viewer.may_operate else {}
    return {"account": oauth.account, "for_each_caller": child.stands_for_instances, **login}


def _error(child: Child, sources: Sources) -> str | None:
    failure = child.past_failure
    if failure is None:
        return None
    return failure.reason if sources.is_local else failure.public_reason


def _tools_of(key: str, sources: Sources) -> set[str]:
    """The tools of a server that some group of the viewer has."""
    return {own for _, contents in sources.groups.values() for own in contents.of(key).tools.values()}


def _group(group: Group, contents: Contents, sources: Sources) -> dict[str, Any]:
    parts = {key: contents.of(key) for key in group.servers}
    return {
        "id": group.id,
        "name": group.name,
        "description": group.description,
        "endpoint": sources.path.lstrip("/") if group.id == DEFAULT_GROUP else f"groups/{group.id}{sources.path}",
        "edition": contents.edition,
        "servers": [
            {
                "key": key,
                "tools": part.tool_count,
                "resources": part.resources,
                "prompts": part.prompts,
                "for_each_caller": key in sources.children and sources.children[key].stands_for_instances,
            }
            for key, part in parts.items()
        ],
    }


def _call(call: RecentCall) -> dict[str, Any]:
    shown = {each.name: getattr(call, each.name) for each in fields(call)}
    return {"id": call.id, **shown, "principal": call.principal.name}
