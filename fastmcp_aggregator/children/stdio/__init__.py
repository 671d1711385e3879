"""The stdio transport to a server."""
