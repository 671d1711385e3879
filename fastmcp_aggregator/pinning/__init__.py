"""Tool definitions that have been approved: what is kept of them, and what differs from it later."""
