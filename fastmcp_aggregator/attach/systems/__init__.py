"""What bridges and hubs need of the operating system: a hub's address and lock, new processes, waiting for what comes.

`posix.py` and `windows.py` have the same names; this is the one place that chooses.
"""

import sys

if sys.platform == "win32":
    from fastmcp_aggregator.attach.systems.windows import (
        ENDING_SIGNALS,
        POLLIN,
        POLLOUT,
        Listener,
        begin,
        connect,
        noted,
        open_log,
        own_server,
        poll,
    )
else:
    from fastmcp_aggregator.attach.systems.posix import (
        ENDING_SIGNALS,
        POLLIN,
        POLLOUT,
        Listener,
        begin,
        connect,
        noted,
        open_log,
        own_server,
        poll,
    )

__all__ = [
    "ENDING_SIGNALS",
    "POLLIN",
    "POLLOUT",
    "Listener",
    "begin",
    "connect",
    "noted",
    "open_log",
    "own_server",
    "poll",
]
