"""Doubles, clients and servers that tests share."""
