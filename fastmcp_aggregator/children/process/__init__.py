"""The process of a stdio server: spawn, environment, stderr, end."""
