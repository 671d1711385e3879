"""The command line runs in the process of the tests, which is afterwards as it was found."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _process_as_found() -> Iterator[None]:
    handlers = [signal.getsignal(number) for number in SIGNALS]
    root, own = logging.getLogger(), logging.getLogger("fastmcp_aggregator")
    log_handlers, levels, environ = root.handlers, (root.level, own.level), dict(os.environ)
    yield
    root.handlers = log_handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    for name in os.environ.keys() - environ.keys():
        del os.environ[name]
    for number, handler in zip(SIGNALS, handlers, strict=True):
        signal.signal(number, handler)
