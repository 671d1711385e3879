"""The error of the vault: a document cannot be read or kept."""

from __future__ import annotations

from fastmcp_aggregator.errors import AggregatorError


class VaultError(AggregatorError):
    """What is kept cannot be read, or nothing can be kept. The message is for users, and repeats nothing of it."""
