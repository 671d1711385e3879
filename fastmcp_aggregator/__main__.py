"""`python -m fastmcp_aggregator`, and the program: the first answers of a client on stdio, then the command line."""

import sys

from fastmcp_aggregator.early.front import begin


def main() -> int:
    """Run the program; the exit code."""
    begin(sys.argv[1:])
    from fastmcp_aggregator.cli.main import main as run  # noqa: PLC0415 - it takes a while

    return run()


if __name__ == "__main__":
    sys.exit(main())
