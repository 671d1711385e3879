"""An outline of labels: a tree on a terminal, indented lines anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastmcp_aggregator.cli.terminal.console import put
from fastmcp_aggregator.escaping import printable

if TYPE_CHECKING:
    from rich.tree import Tree


@dataclass(frozen=True, slots=True)
class Branch:
    """A label, what is said about it, and what is below it."""

    label: str
    remark: str = ""
    branches: Sequence[Branch] = ()
    is_bad: bool = False


def put_outline(branches: Sequence[Branch]) -> None:
    """Write the branches to stdout."""
    if sys.stdout.isatty():
        from rich.console import Console  # noqa: PLC0415 - rich is for terminals only

        console = Console()
        for branch in branches:
            console.print(_tree(branch))
    elif branches:
        put("\n".join(line for branch in branches for line in _indented(branch, 0)))


def _indented(branch: Branch, depth: int) -> Iterator[str]:
    yield printable("  " * depth + "  ".join(filter(None, (branch.label, branch.remark))))
    for below in branch.branches:
        yield from _indented(below, depth + 1)


def _tree(branch: Branch) -> Tree:
    from rich.text import Text  # noqa: PLC0415 - as above
    from rich.tree import Tree  # noqa: PLC0415 - as above

    label = Text(printable(branch.label), "red" if branch.is_bad else "bold" if branch.branches else "")
    if branch.remark:
        label.append(f"  {printable(branch.remark)}", "dim")
    tree = Tree(label, guide_style="dim")
    tree.children.extend(_tree(below) for below in branch.branches)
    return tree
