"""Roles: what a caller may do with a hub, beside the groups that it may use."""

from __future__ import annotations

from collections.abc import Iterable

CALL = "call"
"""Call the tools of its groups, read their resources, and so on: all that MCP has."""
METRICS = "metrics"
"""Read the metrics, which are of all groups."""
OBSERVE = "observe"
"""See on the dashboard and in the status all servers, groups and calls; and the metrics."""
OPERATE = "operate"
"""Wake, stop and restart servers, see what they write to stderr, take tools out of service, see keys, approve pins; and
what an observer may.
"""
ROLES = (CALL, METRICS, OBSERVE, OPERATE)
EVERYTHING = frozenset(ROLES)
USUAL = frozenset({CALL})
"""The roles of a caller by default."""
_IMPLIED = {OBSERVE: {METRICS}, OPERATE: {OBSERVE, METRICS}}


def with_implied(roles: Iterable[str]) -> frozenset[str]:
    given = frozenset(roles)
    return given.union(*(_IMPLIED.get(role, ()) for role in given))
