"""Byte pipes: a line splitter and a token bucket, shared by the front's stdio and the servers'."""
