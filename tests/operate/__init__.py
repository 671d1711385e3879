"""The walk of a platform engineer, as a program: `python -m operate`. Each step is checked."""
