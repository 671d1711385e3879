"""Protocol versions and the names of what modern messages carry, for what is answered before the SDK is imported.

The SDK's `mcp_types.version` says the same, which a test checks.
"""

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions with an `initialize` handshake, the newest last."""
MODERN_VERSION = "2026-07-28"

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
