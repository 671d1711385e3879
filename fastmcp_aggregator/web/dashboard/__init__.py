"""A page for people: how the servers are, what the groups contain, a form for each tool, and the last calls."""
