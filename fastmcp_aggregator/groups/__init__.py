"""Named subsets of servers and tools: who may see and call what."""

from fastmcp_aggregator.groups.loader import load_groups
from fastmcp_aggregator.groups.models import DEFAULT_GROUP, Group, Groups, is_group_id

__all__ = ["DEFAULT_GROUP", "Group", "Groups", "is_group_id", "load_groups"]
