"""The words in the names of a server's program and package that tell what kind of server it is."""

from __future__ import annotations

import re

from fastmcp_aggregator.config import StdioServer

_STATEFUL = """
    memory knowledge thinking sequentialthinking
    browser browsers browsermcp playwright puppeteer selenium chrome chromium firefox devtools stagehand
    shell terminal tmux commander ssh repl jupyter ipython kernel debugger
"""
STATEFUL_WORDS = frozenset(_STATEFUL.split())
"""Words in the names of programs and packages that keep state: memories, browsers, shells."""
FOLDER_WORDS = frozenset(["claude", "codex", "dart", "eslint", "git", "gopls", "ng", "nx", "serena"])
"""Programs that work in the folder in which they are started."""
_WORD = re.compile(r"[a-z]+")
MOST_ARGUMENTS = 50


def word_among(words: frozenset[str], server: StdioServer) -> str | None:
    """The first of these words in the name of the command, or of a package or script among its arguments."""
    names = [server.command, *(arg for arg in server.args[:MOST_ARGUMENTS] if not arg.startswith("-"))]
    found = (word for name in names for word in _WORD.findall(_own_part(name).lower()) if word in words)
    return next(found, None)


def _own_part(name: str) -> str:
    """The part of a path that names the program; a package of npm is named by its scope, too: `@playwright/mcp`."""
    if name.startswith("@"):
        return name
    _, is_installed, path = name.rpartition("/node_modules/")
    package = path.split("/")[: 2 if path.startswith("@") else 1]
    return "/".join(package) if is_installed and package != [".bin"] else name.rpartition("/")[2].removesuffix(".git")
