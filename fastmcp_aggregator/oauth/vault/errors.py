"""The error of the vault: a document cannot be read or kept."""

from __future__ import annotations

from fastmcp_aggregator.errors import AggregatorError


class VaultError(AggregatorError):
    """The vault cannot be read or written. The message is for users, and repeats nothing of its content."""
