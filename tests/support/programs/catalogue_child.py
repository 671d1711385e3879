"""A lean child whose tools are as it is told, each with the result that it is told, or else its arguments.

python -S catalogue_child.py '{"definitions": [{"name": "add", "inputSchema": {}}], "answers": {"add": {…}}}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import lean_child


class CatalogueChild(lean_child.Child):
    def __init__(
        self, *, definitions: list[dict[str, Any]], answers: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.tools[:] = definitions
        self.answers = answers or {}

    def call(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any] | None:
        name = params["name"]
        if name in self.answers:
            return dict(self.answers[name])
        if any(tool["name"] == name for tool in self.tools) and not hasattr(self, f"call_{name}"):
            return self.text({"tool": name, "arguments": params.get("arguments") or {}})
        return super().call(request_id, params)


if __name__ == "__main__":
    CatalogueChild(**json.loads(sys.argv[1])).serve()
