"""The HTTP transports to a remote server: client, credentials, failures."""
