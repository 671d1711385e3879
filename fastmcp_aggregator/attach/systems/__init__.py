"""The needs of bridges and hubs of the operating system: a hub's address and lock, new processes, waiting for input.

`posix.py` and `windows.py` have the same names; this is the one place that chooses.
"""

import sys

if sys.platform == "win32":
    from fastmcp_aggregator.attach.systems import windows as system
else:
    from fastmcp_aggregator.attach.systems import posix as system

__all__ = ["system"]
