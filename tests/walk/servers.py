"""The servers of the walk, from PyPI and npm, pinned; and how an entry starts each."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

NPM = {
    "@modelcontextprotocol/server-everything": ("2026.8.31", "mcp-server-everything", []),
    "@modelcontextprotocol/server-filesystem": ("2026.8.31", "mcp-server-filesystem", ["FILES"]),
    "@modelcontextprotocol/server-memory": ("2026.8.31", "mcp-server-memory", []),
    "@modelcontextprotocol/server-sequential-thinking": ("2026.8.31", "mcp-server-sequential-thinking", []),
    "@modelcontextprotocol/server-github": ("2025.4.8", "mcp-server-github", []),
    "@playwright/mcp": ("0.0.83", "playwright-mcp", []),
    "chrome-devtools-mcp": ("1.11.0", "chrome-devtools-mcp", []),
    "@upstash/context7-mcp": ("4.1.1", "context7-mcp", []),
    "@wonderwhy-er/desktop-commander": ("0.2.52", "desktop-commander", []),
    "mcp-server-kubernetes": ("4.1.7", "mcp-server-kubernetes", []),
    "@coo-quack/calc-mcp": ("2.1.1", "calc-mcp", []),
    "@cyanheads/git-mcp-server": ("2.15.3", "git-mcp-server", []),
    "@notionhq/notion-mcp-server": ("2.5.2", "notion-mcp-server", []),
    "@eslint/mcp": ("0.3.13", "mcp", []),
    "@negokaz/excel-mcp-server": ("0.12.0", "excel-mcp-server", []),
    "@antv/mcp-server-chart": ("0.9.10", "mcp-server-chart", []),
    "@drawio/mcp": ("1.6.1", "drawio-mcp", []),
}
"""By package: version, command, arguments."""

PYPI = {
    "mcp-server-time": ("2026.10.19", "mcp-server-time", []),
    "mcp-server-git": ("2026.10.19", "mcp-server-git", []),
    "mcp-server-fetch": ("2026.10.24", "mcp-server-fetch", []),
    "mcp-server-sqlite": ("2025.4.25", "mcp-server-sqlite", ["--db-path", "FILES/notes.db"]),
    "mcp-server-motherduck": ("1.1.0", "mcp-server-motherduck", ["--db-path", ":memory:", "--read-write"]),
    "mcp-server-calculator": ("0.2.1", "mcp-server-calculator", []),
    "excel-mcp-server": ("2.2.2", "excel-mcp-server", ["stdio"]),
    "office-word-mcp-server": ("1.1.11", "word_mcp_server", []),
    "mcp-text-editor": ("1.0.2", "mcp-text-editor", []),
    "code-index-mcp": ("2.17.1", "code-index-mcp", []),
    "mcp-shell-server": ("1.1.14", "mcp-shell-server", []),
    "cli-mcp-server": ("0.2.5", "cli-mcp-server", []),
    "arxiv-mcp-server": ("0.8.2", "arxiv-mcp-server", []),
    "mcp-alchemy": ("2026.10.15.202659", "mcp-alchemy", []),
    "mcp-nixos": ("3.1.0", "mcp-nixos", []),
    "wikipedia-mcp": ("2.0.1", "wikipedia-mcp", []),
    "mcp-atlassian": ("0.23.1", "mcp-atlassian", []),
}
WITH_OLD_SDK = frozenset({"mcp-server-sqlite", "mcp-text-editor", "cli-mcp-server"})
"""They need `mcp<2`, and do not say so."""
ENVIRONMENT = {
    "@modelcontextprotocol/server-github": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdefghijklmnop"},
    "@notionhq/notion-mcp-server": {"NOTION_TOKEN": "ntn_0123456789abcdefghijklmnop"},
    "mcp-alchemy": {"DB_URL": "sqlite:///FILES/notes.db"},
    "mcp-shell-server": {"ALLOW_COMMANDS": "ls,cat"},
    "cli-mcp-server": {"ALLOWED_DIR": "FILES"},
    "mcp-atlassian": {
        "JIRA_URL": "https://jira.example.com",
        "JIRA_USERNAME": "ada@example.com",
        "JIRA_API_TOKEN": "ATATT0123456789abcdefghijk",
    },
}


def install(folder: Path, uv: str) -> None:
    """Install what is missing: npm packages each in a folder of its own, Python packages each in an environment."""
    for package, (version, _, _) in NPM.items():
        target = folder / "node" / _folder(package)
        if not (target / "node_modules" / package).is_dir():
            target.mkdir(parents=True, exist_ok=True)
            line = [
                "npm",
                "install",
                "--prefix",
                str(target),
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--silent",
            ]
            _try([*line, f"{package}@{version}"])
    for package, (version, command, _) in PYPI.items():
        target = folder / "python" / package
        if not (target / "bin" / command).is_file():
            _try([uv, "venv", "--quiet", "--allow-existing", "--python", "3.11", str(target)])
            old = ["mcp<2"] if package in WITH_OLD_SDK else []
            _try([uv, "pip", "install", "--quiet", "--python", str(target), f"{package}=={version}", *old])


def entries(folder: Path, files: Path) -> dict[str, dict[str, Any]]:
    """The entries of all servers that are installed, by a short name."""
    found: dict[str, dict[str, Any]] = {}
    for package, (_, command, arguments) in {**NPM, **PYPI}.items():
        own = folder / "node" / _folder(package) / "node_modules" / ".bin" if package in NPM else None
        program = (own or folder / "python" / package / "bin") / command
        if program.exists():
            entry = {"command": str(program), "args": arguments, "env": ENVIRONMENT.get(package, {})}
            found[key_of(package)] = json.loads(json.dumps(entry).replace("FILES", str(files)))
    return found


def key_of(package: str) -> str:
    """The name that a newcomer gives it."""
    return _folder(package).replace("modelcontextprotocol-", "")


def _folder(package: str) -> str:
    return package.removeprefix("@").replace("/", "-")


def _try(command: list[str]) -> None:
    """What cannot be installed here is left out, and said."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if ended.returncode:
        print(f"left out: {' '.join(command[-2:])}: {ended.stderr.strip().splitlines()[-1:]}", flush=True)
