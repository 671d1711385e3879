"""The name of the program, and the version of this package, which the build reads from here."""

PROGRAM = "fastmcp-aggregator"
VERSION = "0.1.0"
