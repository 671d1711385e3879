"""The protocol extensions that are passed on (SEP-2133): one module for each, and their table."""
