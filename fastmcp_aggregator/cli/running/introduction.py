"""The handshake of a client that was never served, answered from the config and the kept catalogues.

It says what the full front would say at that moment, and needs neither FastMCP nor the SDK, so that a client has its
answer before they are imported and before the first server is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import TypeIs

from fastmcp_aggregator.catalogue.persisted.store import CatalogueStore
from fastmcp_aggregator.catalogue.snapshot import Catalogue
from fastmcp_aggregator.children.process.on_demand import starts_asleep
from fastmcp_aggregator.config import McpConfig, ServerConfig
from fastmcp_aggregator.extensions import table as extensions
from fastmcp_aggregator.front.introduction import Introduced, capabilities_together, instructions_together
from fastmcp_aggregator.groups import DEFAULT_GROUP, Groups
from fastmcp_aggregator.protocol import raw_json
from fastmcp_aggregator.protocol.client_capabilities import kind_of
from fastmcp_aggregator.protocol.methods import Era
from fastmcp_aggregator.settings.model import AggregatorSettings
from fastmcp_aggregator.settings.options import ChildOptions
from fastmcp_aggregator.version import VERSION

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions with an `initialize` handshake, the newest last."""
MODERN_VERSION = "2026-07-28"

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


class Introduction:
    """Answers handshakes; `config` has the servers that the client will see, `name` is what it will see them as."""

    def __init__(self, config: McpConfig, settings: AggregatorSettings, catalogues: CatalogueStore, name: str) -> None:
        self._servers = config.servers
        self._settings = settings
        self._catalogues = catalogues
        self._info = {"name": name, "version": settings.server_version or VERSION}

    def __call__(self, method: str, params: Mapping[str, Any]) -> dict[str, bytes] | None:
        """The answer to a handshake, by its method; None: the full front is to look at it."""
        if self._settings.pins is not None or self._has_views:
            return None  # what they make of instructions and capabilities is told when it is known
        result = self._legacy(params) if method == "initialize" else self._modern(params)
        return None if result is None else {method: raw_json.encode(result)}

    @property
    def _has_views(self) -> bool:
        settings = self._settings
        return settings.tool_search or settings.prompts_as_tools or settings.resources_as_tools

    def _legacy(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        version, declared, info = (params.get(name) for name in ("protocolVersion", "capabilities", "clientInfo"))
        if not isinstance(version, str) or not _is_usual(declared) or not _names_itself(info):
            return None
        agreed = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        return {"protocolVersion": agreed, "serverInfo": self._info, **self._known_to(declared, "legacy")}

    def _modern(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        meta = params.get("_meta")
        if params.keys() != {"_meta"} or not isinstance(meta, Mapping):
            return None
        declared = meta.get(CLIENT_CAPABILITIES)
        if meta.get(PROTOCOL_VERSION) != MODERN_VERSION or not _is_usual(declared):
            return None
        return {
            "_meta": {SERVER_INFO: self._info},
            "ttlMs": 0,
            "cacheScope": "private",
            "supportedVersions": [MODERN_VERSION],
            "resultType": "complete",
            **self._known_to(declared, "modern"),
        }

    def _known_to(self, declared: Mapping[str, Any], era: Era) -> dict[str, Any]:
        kind = kind_of(extensions.for_child(declared, era), is_legacy=era == "legacy")
        servers = [
            Introduced(key, server.description, self._known(server, kind)) for key, server in self._servers.items()
        ]
        return {
            "capabilities": extensions.of_era(capabilities_together(servers, {}), era),
            "instructions": instructions_together(servers),
        }

    def _known(self, server: ServerConfig, kind: str) -> Catalogue | None:
        """The answers to such clients in an earlier run; strict, that must be asked for."""
        options = ChildOptions.from_settings(self._settings, server)
        by_kind = self._catalogues.known(server, options).by_kind or {}
        is_used = not options.settings.strict or starts_asleep(
            server, options, (each.catalogue for each in by_kind.values())
        )
        return by_kind[kind].catalogue if is_used and kind in by_kind else None


def introduction_of(
    config: McpConfig, settings: AggregatorSettings, groups: Groups, group: str | None, catalogues: CatalogueStore
) -> Introduction:
    """The introduction for clients of a group, by default of all that is served."""
    chosen = groups[group or DEFAULT_GROUP]
    shown = config.only(chosen.servers)
    if chosen.tool_search is not None:
        settings = settings.model_copy(update={"tool_search": chosen.tool_search})
    name = settings.name if group in (None, DEFAULT_GROUP) else f"{settings.name}/{group}"
    return Introduction(shown, settings, catalogues, name)


def _is_usual(declared: object) -> TypeIs[Mapping[str, Any]]:
    """True if the SDK will take these capabilities of a client: objects, and flags in them."""
    return isinstance(declared, Mapping) and all(
        isinstance(each, Mapping) and all(isinstance(part, bool | Mapping) for part in each.values())
        for each in declared.values()
    )


def _names_itself(info: object) -> bool:
    return isinstance(info, Mapping) and all(isinstance(info.get(name), str) for name in ("name", "version"))
