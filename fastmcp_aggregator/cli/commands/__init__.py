"""The commands that serve, look at and prepare servers, one file each."""
