"""Pinned tool definitions: those that were approved, and how what servers offer differs from them."""
