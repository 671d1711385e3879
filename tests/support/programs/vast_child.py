"""A lean child that says too much: `vast_child.py KIND OPTIONS`; the options are those of `Child`, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from lean_child import Child

_TOOLS = 950
_WORDS = [f"zap{number}" for number in range(5000)]


def _text(tool: int, round_: int) -> dict[str, Any]:
    start = tool * 7 + round_
    return {"description": " ".join(_WORDS[(start + number) % len(_WORDS)] for number in range(1000))}


def _hidden(tool: int, round_: int) -> dict[str, Any]:
    return {"description": f"{round_} " + "\u202e" * 1300}


def _headers(tool: int, round_: int) -> dict[str, Any]:
    properties = {f"p{number}": {"type": "string", "x-mcp-header": f"H{number}"} for number in range(140)}
    return {"description": str(round_), "inputSchema": {"type": "object", "properties": properties}}


_LISTS: dict[str, Callable[[int, int], dict[str, Any]]] = {"words": _text, "hidden": _hidden, "headers": _headers}
"""By kind, what is said of a tool in a list of 8 MB, which is another one each time."""


class Vast(Child):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__(tool_names=["again", "listed"], **options)
        self.kind = kind
        self.listed = self.round = 0

    def declared(self) -> dict[str, Any]:
        types = [f"{self.name}/{number}" for number in range(40_000)] if self.kind == "types" else []
        more = {"x": {"y": "z" * 8_000_000}} if self.kind == "experimental" else {}
        extensions = {"io.modelcontextprotocol/ui": {"mimeTypes": types}}
        return {**super().declared(), "experimental": more, "extensions": extensions}

    def page(self, key: str, params: dict[str, Any]) -> dict[str, Any]:
        if key == "tools" and self.kind in _LISTS and "cursor" not in params:
            self.listed += 1
            about = _LISTS[self.kind]
            more = ({**self.tool(f"vast_{number}"), **about(number, self.round)} for number in range(_TOOLS))
            self.lists[key] = [*self.tools, *more]
        return super().page(key, params)

    def read(self, params: dict[str, Any]) -> dict[str, Any]:
        page = {"uri": params["uri"], "mimeType": "text/html;profile=mcp-app", "text": "<html " + "a " * 4_000_000}
        return {"contents": [page]} if self.kind == "page" else super().read(params)

    def call_again(self, _: Any, __: Any, ___: Any) -> dict[str, Any]:
        self.round += 1
        self.lists_changed()
        return self.text({"round": self.round})

    def call_listed(self, _: Any, __: Any, ___: Any) -> dict[str, Any]:
        return self.text({"listed": self.listed})


if __name__ == "__main__":
    Vast(sys.argv[1], **json.loads(sys.argv[2])).serve()
