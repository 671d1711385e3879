"""Running an app for a command, or reaching one that runs."""
