"""Streams that an HTTP client may resume."""
