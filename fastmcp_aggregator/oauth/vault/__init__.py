"""Where tokens are kept, sealed."""
