"""The stdio transport to the client, with its graceful shutdown."""
