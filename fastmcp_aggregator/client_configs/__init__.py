"""Other MCP clients on this machine: where each keeps its servers, in which format, and how to read and change it."""
