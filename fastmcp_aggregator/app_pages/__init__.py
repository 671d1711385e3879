"""Pages of MCP Apps as clients get them: with a script that lets them use their server's own names."""
