"""The settings of what clients see of tools: names and texts of single ones, and other ways to see all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from fastmcp_aggregator.settings.access import AccessSettings, ServerAccessSettings

Name = Annotated[str, Field(min_length=1, max_length=128)]


class ToolSettings(BaseModel):
    """How one tool is shown; what is left out is as the server says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name | None = Field(default=None, description="The tool's own name, instead of the server's (default none).")
    title: str | None = Field(default=None, description="Its title (default none).")
    description: str | None = Field(default=None, description="Its description (default none).")
    hidden: bool = Field(default=False, description="Whether nobody sees and may call it (default false).")

    def applied(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """The tool, as listed by its server, the way it is to be shown."""
        texts = {"name": self.name, "title": self.title, "description": self.description}
        return {**tool, **{field: text for field, text in texts.items() if text is not None}}


ToolChanges = Mapping[str, Mapping[str, ToolSettings]]
"""By server key, and the name that the server has for the tool."""


class ServerToolSettings(ServerAccessSettings):
    """See `ServerSettings`."""

    tools: dict[str, ToolSettings] = Field(
        default_factory=dict, description="How single tools are shown, by the server's name for them (default none)."
    )


class ViewSettings(AccessSettings):
    """See `AggregatorSettings`."""

    tool_search: bool = Field(
        default=False,
        description="Whether clients see search_tools and call_tool instead of all tools (default false).",
    )
    prompts_as_tools: bool = Field(
        default=False, description="Whether prompts can be had by tools as well (default false)."
    )
    resources_as_tools: bool = Field(
        default=False, description="Whether resources can be had by tools as well (default false)."
    )
