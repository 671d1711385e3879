"""As for the command line, which some of these tests run."""

from cli.conftest import _process_as_found

__all__ = ["_process_as_found"]
