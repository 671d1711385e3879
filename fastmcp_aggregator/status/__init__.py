"""Status values: a server's state, and what is told of it."""
