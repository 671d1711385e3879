"""Who may come in over HTTP: API keys and tokens of an identity provider, and what either says about the caller."""
