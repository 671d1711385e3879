"""What the MCP specification says, as values: capabilities, log levels, the shapes of its eras."""
