"""The stdio transport to the client."""
