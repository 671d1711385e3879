"""What replicas of one hub share: rate limits, a key, and messages. One replica alone keeps it all in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastmcp_aggregator.errors import ConfigError, ConfigProblem
from fastmcp_aggregator.replicas.peers import Peers
from fastmcp_aggregator.settings.model import AggregatorSettings

if TYPE_CHECKING:
    from fastmcp_aggregator.oauth.vault.vault import Vault


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


def vault_from_settings(settings: AggregatorSettings) -> Vault:
    """Where the tokens of accounts at remote servers are kept.

    Raises:
        ConfigError: `redis_url` cannot be used, or there is no `redis_key` to seal them with.
    """
    if settings.redis_url is None:
        from fastmcp_aggregator.oauth.accounts import directory_of  # noqa: PLC0415 - for servers with OAuth only
        from fastmcp_aggregator.oauth.vault.vault import FileVault  # noqa: PLC0415 - the same

        return FileVault(directory_of(settings))
    if settings.redis_key is None:
        message = "is needed where replicas share Redis and a server has `oauth`: tokens are sealed with it"
        raise ConfigError("settings", [ConfigProblem("invalid_schema", "redis_key", message)])
    from fastmcp_aggregator.replicas.redis_vault import RedisVault  # noqa: PLC0415 - an extra, for replicas only

    return RedisVault(settings.redis_url.get_secret_value(), settings.redis_key.get_secret_value())
