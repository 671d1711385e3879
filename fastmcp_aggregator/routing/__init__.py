"""Routing: the table from public names and addresses to servers."""
