"""Attaching a client to the hub of its user: a bridge of lines. Nothing but the standard library, and light."""
