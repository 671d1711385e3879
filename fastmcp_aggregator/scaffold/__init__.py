"""Writing a new MCP server: the rules it is held to, the templates, and the projects made of them."""
