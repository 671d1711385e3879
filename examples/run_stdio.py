"""A program of your own that an MCP client starts: all servers of a config, on stdin and stdout.

python examples/run_stdio.py [CONFIG]
"""

import sys
from pathlib import Path

from fastmcp_aggregator import AggregatorError, build_aggregator

CONFIG = Path(__file__).with_name("config.json")


def main(config: str | Path = CONFIG) -> None:
    try:
        build_aggregator(config, name="my-tools").run()
    except AggregatorError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
