"""What of a child's catalogue is taken up, where its tools are pinned."""

from __future__ import annotations

import logging
from dataclasses import replace

from fastmcp_aggregator.catalogue.snapshot import Catalogue, Kind
from fastmcp_aggregator.pinning.pins import Pins

logger = logging.getLogger(__name__)


def screened(pins: Pins, server_key: str, catalogue: Catalogue) -> Catalogue:
    """The catalogue without what is blocked; what is not as it was pinned is told in the log."""
    for warning in pins.warnings(server_key, catalogue.of(Kind.TOOL), catalogue.instructions):
        logger.warning("%s", warning)
    tools = tuple(tool for tool in catalogue.of(Kind.TOOL) if not pins.is_blocked(server_key, tool))
    is_blocked = pins.are_instructions_blocked(server_key, catalogue.instructions)
    return replace(
        catalogue,
        components={**catalogue.components, Kind.TOOL: tools},
        instructions=None if is_blocked else catalogue.instructions,
    )
