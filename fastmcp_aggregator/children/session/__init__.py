"""The MCP session with a server: requests, incoming messages, listing, whose message is it."""
