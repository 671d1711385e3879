"""FastMCP's view of the children: its provider, components and tool views."""
