"""The stdio transport to a server, with its flow control."""
