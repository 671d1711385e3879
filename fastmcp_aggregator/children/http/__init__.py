"""The HTTP transports to a server: client, credentials, failures."""
