"""The hub of one user on one machine: one aggregator for all clients that attach to its socket."""
