"""What the commands do, apart from their grammar: imported when a command is run, and free to import what is heavy."""
