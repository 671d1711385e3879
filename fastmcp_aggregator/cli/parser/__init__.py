"""What a command is, the arguments that several have, and those of a tool."""
