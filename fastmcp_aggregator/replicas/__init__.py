"""The state that replicas of a hub share: rate limits, a key, sessions, messages. One replica alone keeps all in
memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastmcp_aggregator.errors import ConfigError, ConfigProblem
from fastmcp_aggregator.replicas.peers import Peers
from fastmcp_aggregator.settings.model import AggregatorSettings

if TYPE_CHECKING:
    from pydantic import SecretStr

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


def sessions_from_settings(settings: AggregatorSettings) -> Vault | None:
    """The store of sessions of clients up to 2025-11-25 for other replicas; None: there are none, or no `redis_key` to
    seal them with.

    Raises:
        ConfigError: `redis_url` cannot be used.
    """
    if settings.redis_url is None or settings.redis_key is None:
        return None
    return _redis_vault(settings.redis_url, settings.redis_key)


def vault_from_settings(settings: AggregatorSettings) -> Vault:
    """The vault of tokens of accounts at remote servers.

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
    return _redis_vault(settings.redis_url, settings.redis_key)


def _redis_vault(url: SecretStr, secret: SecretStr) -> Vault:
    from fastmcp_aggregator.replicas.redis_vault import RedisVault  # noqa: PLC0415 - an extra, for replicas only

    return RedisVault(url.get_secret_value(), secret.get_secret_value())
