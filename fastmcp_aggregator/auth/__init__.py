"""Authentication over HTTP: FastMCP auth providers made of API keys and tokens."""
