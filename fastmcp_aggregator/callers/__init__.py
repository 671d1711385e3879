"""Callers: who sent a request, the call, and the way back to its client."""
