"""Status values: a server's state machine, and a snapshot of it."""
