"""The process of a stdio server: spawn, environment, stderr, graceful shutdown and kill."""
