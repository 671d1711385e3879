"""What is served over HTTP beside MCP: health, status, metrics, groups, the dashboard."""
