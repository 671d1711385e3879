"""The commands for the files of other MCP clients, one file each."""
