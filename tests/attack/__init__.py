"""The attacks that a hub for people who do not trust each other has to hold, as one table that is run."""
