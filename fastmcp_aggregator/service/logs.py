"""The log, on stderr: lines for people, or JSON in production. Stdout carries the protocol and nothing else."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from fastmcp_aggregator.service.settings import ServiceSettings


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(settings: ServiceSettings) -> None:
    """Send everything to stderr, that of libraries too."""
    handler = logging.StreamHandler(sys.stderr)
    if settings.profile == "production":
        handler.setFormatter(_Json())
    else:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logging.root.handlers = [handler]
    logging.root.setLevel(settings.log_level.upper())
    for name in ("fastmcp", "uvicorn", "uvicorn.access", "uvicorn.error"):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
