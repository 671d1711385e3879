"""JSON-RPC: the types of parameters and results as plain JSON, and the error code of this program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Params = Mapping[str, Any]
Result = dict[str, Any]

SERVER_UNAVAILABLE = -32000
"""The server cannot be asked now. `data` names it, and says when it is retried, in seconds."""
