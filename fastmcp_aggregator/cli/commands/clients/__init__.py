"""The commands about the configs of MCP clients on this machine."""
