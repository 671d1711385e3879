"""Naming: public and original names, per-client name rules, and suggestions for unknown names."""

from fastmcp_aggregator.naming.client_rules import (
    CLIENT_RULES,
    ClientRule,
    Profile,
    SeparatorSetting,
    every_spelling,
    rule_for,
)
from fastmcp_aggregator.naming.messages import unknown_name_message, unknown_uri_message
from fastmcp_aggregator.naming.rules import NameRule, Separator
from fastmcp_aggregator.naming.suggestions import closest
from fastmcp_aggregator.naming.uris import public_uri, split_public_uri

__all__ = [
    "CLIENT_RULES",
    "ClientRule",
    "NameRule",
    "Profile",
    "Separator",
    "SeparatorSetting",
    "closest",
    "every_spelling",
    "public_uri",
    "rule_for",
    "split_public_uri",
    "unknown_name_message",
    "unknown_uri_message",
]
