"""Process groups, one implementation for each operating system."""
