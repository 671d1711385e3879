"""MCP messages over byte pipes: shared by the front's stdio and the children's."""
