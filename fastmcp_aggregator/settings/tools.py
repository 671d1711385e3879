"""The settings of single tools: how clients see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=128)]


class ToolSettings(BaseModel):
    """How one tool is shown; what is left out is as the server says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name | None = Field(default=None, description="the tool's own name, instead of the server's")
    title: str | None = Field(default=None, description="its title")
    description: str | None = Field(default=None, description="its description")
    hidden: bool = Field(default=False, description="whether it is neither listed nor callable")

    def applied(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool, as listed by its server, the way it is to be shown."""
        texts = {"name": self.name, "title": self.title, "description": self.description}
        return {**tool, **{field: text for field, text in texts.items() if text is not None}}


ToolChanges = Mapping[str, Mapping[str, ToolSettings]]
"""By server key, and the name that the server has for the tool."""
