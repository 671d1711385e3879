"""OAuth at remote servers, as their client: which way in, tokens, where they are kept, and one refresh at a time."""
