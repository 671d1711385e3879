"""What replicas of one hub share: rate limits, a key, and messages. One replica alone keeps it all in memory."""

from __future__ import annotations

from fastmcp_aggregator.replicas.peers import Peers
from fastmcp_aggregator.settings.model import AggregatorSettings


def peers_from_settings(settings: AggregatorSettings) -> Peers:
    """The other replicas.

    Raises:
        ConfigError: `redis_url` cannot be the address of a Redis, or the package for it is missing.
    """
    if settings.redis_url is None:
        return Peers()
    from fastmcp_aggregator.replicas.redis_peers import RedisPeers  # noqa: PLC0415 - an extra, for replicas only

    secret = settings.redis_key
    return RedisPeers(settings.redis_url.get_secret_value(), None if secret is None else secret.get_secret_value())
