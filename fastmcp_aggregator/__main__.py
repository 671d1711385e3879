"""`python -m fastmcp_aggregator` is the command line."""

import sys

from fastmcp_aggregator.cli.main import main

sys.exit(main())
