"""The first answers on stdio, while the rest of the program is imported. Nothing but the standard library."""
