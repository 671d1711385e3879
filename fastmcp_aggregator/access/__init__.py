"""Access control over HTTP: API keys, safe addresses to bind, and the principal that a caller has authenticated as."""
