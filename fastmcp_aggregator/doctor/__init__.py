"""What a config needs of this machine, and what in it will cause trouble: found without starting a server."""
