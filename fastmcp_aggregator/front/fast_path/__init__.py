"""The fast path: plain calls from line to line, beside the full path, which takes over whatever turns out unusual."""
