"""Files: atomic writes, rotation, and following changes."""
