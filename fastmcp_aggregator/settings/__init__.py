"""Settings: arguments, environment, file and defaults, and the options of one child that they resolve to."""
