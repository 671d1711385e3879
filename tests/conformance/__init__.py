"""The official conformance suite of MCP, run against one server directly and through the aggregator."""
