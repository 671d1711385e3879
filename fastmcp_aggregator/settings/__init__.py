"""Settings: arguments, environment, file and defaults, and the options made of them."""
